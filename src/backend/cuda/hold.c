/* Holding streams. The device waits for a word of page-locked memory, and no thread is blocked; where the driver has no
 * such wait, a host function stands at a gate. A word is used again with a larger number: a wait for a smaller one has
 * ended by then, also one that its stream has not reached yet. */
#include <errno.h>
#include <stdlib.h>

#include "backend/cuda/internal.h"
#include "backend/gate.h"

struct gb_hold {
    struct cuda_hold_word *word; /* NULL: the gate */
    struct gb_gate *gate;
};

/* NULL: none is free, or there is no page for them. */
static struct cuda_hold_word *take_word(struct cuda_backend *be) {
    struct cuda_hold_words *words = &be->holds;
    struct cuda_hold_word *word = NULL;
    void *page = NULL;
    unsigned i;

    pthread_mutex_lock(&words->lock);
    if (!words->page && cudaHostAlloc(&page, CUDA_HOLD_WORDS * sizeof(*words->page),
                                      cudaHostAllocPortable | cudaHostAllocMapped) == cudaSuccess) {
        words->page = page;
        for (i = 0; i < CUDA_HOLD_WORDS; i++) {
            atomic_init(&words->page[i], 0);
            words->word[i].at = &words->page[i];
        }
    }
    for (i = 0; words->page && i < CUDA_HOLD_WORDS && !word; i++) {
        if (!words->word[i].taken)
            word = &words->word[i];
    }
    if (word) {
        word->taken = true;
        word->number++;
    }
    pthread_mutex_unlock(&words->lock);
    (void)cudaGetLastError();
    return word;
}

static void give_word(struct cuda_backend *be, struct cuda_hold_word *word) {
    atomic_store(word->at, word->number);
    pthread_mutex_lock(&be->holds.lock);
    word->taken = false;
    pthread_mutex_unlock(&be->holds.lock);
}

/* False: this device or driver cannot. */
static bool wait_for_word(struct cuda_backend *be, struct gb_stream *stream, struct cuda_hold_word **ret) {
    struct cuda_hold_word *word;
    void *at = NULL;

    if (!be->driver.stream_wait_value || !(word = take_word(be)))
        return false;
    if (cudaHostGetDevicePointer(&at, (void *)word->at, 0) == cudaSuccess &&
        be->driver.stream_wait_value(stream->handle, (CUdeviceptr)(uintptr_t)at, word->number,
                                     CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS) {
        *ret = word;
        return true;
    }
    (void)cudaGetLastError();
    give_word(be, word);
    return false;
}

static int stand_at_gate(struct cuda_backend *be, struct gb_stream *stream, struct gb_hold *hold,
                         struct gb_error *err) {
    hold->gate = gb_gate_new();
    if (!hold->gate)
        return gb_error_errno(err, GB_ERR_INTERNAL, "malloc", ENOMEM);
    if (gb_cuda_stream_call(&be->base, stream, gb_gate_pass, hold->gate, err) == 0)
        return 0;
    gb_gate_free(hold->gate);
    return -1;
}

int gb_cuda_stream_hold(struct gb_backend *base, struct gb_stream *stream, struct gb_hold **ret, struct gb_error *err) {
    struct cuda_backend *be = gb_cuda_of(base);
    struct gb_hold *hold;

    if (gb_cuda_enter(be, stream->device, err) < 0)
        return -1;
    hold = calloc(1, sizeof(*hold));
    if (!hold)
        return gb_error_errno(err, GB_ERR_INTERNAL, "calloc", ENOMEM);
    if (!wait_for_word(be, stream, &hold->word) && stand_at_gate(be, stream, hold, err) < 0) {
        free(hold);
        return -1;
    }
    *ret = hold;
    return 0;
}

/* A gate whose function died with its device stays: the function may still be at it. */
void gb_cuda_stream_release(struct gb_backend *base, struct gb_hold *hold) {
    if (hold->word)
        give_word(gb_cuda_of(base), hold->word);
    else
        gb_gate_open(hold->gate);
    free(hold);
}

/* All streams are gone. */
void gb_cuda_holds_done(struct cuda_backend *be) {
    if (be->holds.page)
        gb_cuda_pin_free(&be->base, (void *)be->holds.page);
    pthread_mutex_destroy(&be->holds.lock);
}
