/* The ceiling of copies through slabs: on a GPU cudaMemcpyAsync between registered memory and the device, on the host
 * memcpy. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "share.h"
#include "util.h"

#ifdef HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

struct place {
    char *near; /* in place of the slab */
    char *far;  /* in place of the buffer */
#ifdef HAVE_CUDA
    cudaStream_t stream;
#endif
};

static struct place *new_place(struct share_hand *hand) {
    struct place *place = calloc(1, sizeof *place);

    if (!place)
        bench_die("no memory");
    place->near = bench_resident(hand->share->bytes);
    hand->own = place;
    return place;
}

/* --- host --------------------------------------------------------------------------------------------------------- */

static void host_prepare(struct share_hand *hand) {
    new_place(hand)->far = bench_resident(hand->share->bytes);
}

static void host_work(struct share_hand *hand) {
    const struct place *place = hand->own;
    uint64_t i;

    for (i = 0; i < hand->share->count; i++)
        memcpy(hand->share->down ? place->near : place->far, hand->share->down ? place->far : place->near,
               hand->share->bytes);
}

static void host_finish(struct share_hand *hand) {
    free(hand->own); /* the process's end frees resident memory */
}

/* --- GPU ---------------------------------------------------------------------------------------------------------- */

#ifdef HAVE_CUDA
static void must(cudaError_t status, const char *call) {
    if (status != cudaSuccess)
        bench_die("%s: %s", call, cudaGetErrorName(status));
}

static void copy(struct share_hand *hand) {
    const struct share *share = hand->share;
    const struct place *place = hand->own;

    if (share->down)
        must(cudaMemcpyAsync(place->near, place->far, share->bytes, cudaMemcpyDeviceToHost, place->stream),
             "cudaMemcpyAsync");
    else
        must(cudaMemcpyAsync(place->far, place->near, share->bytes, cudaMemcpyHostToDevice, place->stream),
             "cudaMemcpyAsync");
    must(cudaStreamSynchronize(place->stream), "cudaStreamSynchronize");
}

static void cuda_prepare(struct share_hand *hand) {
    struct place *place = new_place(hand);
    void *memory = NULL;

    must(cudaHostRegister(place->near, hand->share->bytes, cudaHostRegisterPortable), "cudaHostRegister");
    must(cudaMalloc(&memory, hand->share->bytes), "cudaMalloc");
    must(cudaMemset(memory, 0x5a, hand->share->bytes), "cudaMemset");
    must(cudaStreamCreateWithFlags(&place->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    place->far = memory;
    copy(hand);
}

static void cuda_work(struct share_hand *hand) {
    uint64_t i;

    for (i = 0; i < hand->share->count; i++)
        copy(hand);
}

static void cuda_finish(struct share_hand *hand) {
    struct place *place = hand->own;

    must(cudaStreamDestroy(place->stream), "cudaStreamDestroy");
    must(cudaFree(place->far), "cudaFree");
    must(cudaHostUnregister(place->near), "cudaHostUnregister");
    free(place);
}
#endif

void share_ceiling(const struct share *share) {
    if (!strcmp(share->device, "host")) {
        share_print_bytes(share, share_run(share, host_prepare, host_work, host_finish));
        return;
    }
#ifdef HAVE_CUDA
    share_print_bytes(share, share_run(share, cuda_prepare, cuda_work, cuda_finish));
#else
    bench_die("built without CUDA");
#endif
}
