/* The ceiling on a GPU: recv into one of two pinned slots while the other is copied to the device, and back. */
#include "raw.h"

#include "base/hash.h"
#include "util.h"

#ifdef HAVE_CUDA
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 2

struct raw_place {
    char *device;
    uint64_t bytes;
    char *other; /* the target of copies; with a record, of every second upload */
    cudaEvent_t start, end;
    char *slots[SLOTS];
    size_t slot_bytes;
    cudaStream_t stream;
    cudaEvent_t copied[SLOTS];
    long id; /* of its record */
    long generation;
    char *pinned; /* of durable uploads: a whole body; NULL: not made */
    char *header;
};

static void must(cudaError_t status, const char *call) {
    if (status != cudaSuccess)
        bench_die("%s: %s", call, cudaGetErrorName(status));
}

static struct raw_place *cuda_make(uint64_t bytes, size_t slot_bytes) {
    struct raw_place *place = calloc(1, sizeof *place);
    void *memory;
    int i;

    if (!place)
        bench_die("no memory");
    place->bytes = bytes;
    place->slot_bytes = slot_bytes;
    place->id = raw_record_id();
    must(cudaMalloc(&memory, bytes), "cudaMalloc");
    place->device = memory;
    must(cudaMemset(memory, 0x5a, bytes), "cudaMemset");
    must(cudaStreamCreateWithFlags(&place->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    for (i = 0; i < SLOTS; i++) {
        must(cudaHostAlloc(&memory, slot_bytes, cudaHostAllocPortable), "cudaHostAlloc");
        place->slots[i] = memory;
        must(cudaEventCreateWithFlags(&place->copied[i], cudaEventDisableTiming), "cudaEventCreateWithFlags");
    }
    return place;
}

/* The bytes before stay as they are until the record of the new ones is committed. */
static void take_other(struct raw_place *place) {
    char *device = place->device;
    void *memory = place->other;

    if (!memory)
        must(cudaMalloc(&memory, place->bytes), "cudaMalloc");
    place->device = memory;
    place->other = device;
}

/* The disk reads the whole body in pinned memory while it goes to the device. */
static bool receive_durable(struct raw_place *place, const struct bench_wire *wire, const void *early, size_t have,
                            uint64_t length) {
    struct raw_body body;
    size_t n = have;

    if (!place->pinned) {
        place->pinned = bench_resident(place->bytes + DIRECT_ALIGN);
        must(cudaHostRegister(place->pinned, place->bytes, cudaHostRegisterPortable), "cudaHostRegister");
        place->header = bench_resident(DIRECT_ALIGN);
    }
    memcpy(place->pinned, early, have);
    raw_body_begin(&body, place->id, ++place->generation, place->pinned, have, length);
    for (;;) {
        must(cudaMemcpyAsync(place->device + body.have - n, place->pinned + body.have - n, n, cudaMemcpyHostToDevice,
                             place->stream),
             "cudaMemcpyAsync");
        n = body.have < length ? raw_body_next(&body, wire) : 0;
        if (!n)
            break;
    }
    must(cudaStreamSynchronize(place->stream), "cudaStreamSynchronize");
    if (body.have == length)
        raw_body_complete(&body, place->header);
    else
        raw_body_discard(&body);
    return body.have == length;
}

static bool cuda_receive(struct raw_place *place, const struct bench_wire *wire, const void *early, size_t have,
                         uint64_t length) {
    uint32_t crc = 0;
    uint64_t done = 0;
    bool ok = true;
    int i = 0;

    if (raw_record_wanted())
        take_other(place);
    if (raw_disk_wanted())
        return receive_durable(place, wire, early, have, length);
    while (done < length) {
        size_t n = length - done < place->slot_bytes ? length - done : place->slot_bytes;
        size_t got = have < n ? have : n;

        must(cudaEventSynchronize(place->copied[i]), "cudaEventSynchronize");
        memcpy(place->slots[i], early, got);
        early = (const char *)early + got;
        have -= got;
        ok = raw_receive_all(wire, place->slots[i] + got, n - got);
        if (!ok)
            break;
        must(cudaMemcpyAsync(place->device + done, place->slots[i], n, cudaMemcpyHostToDevice, place->stream),
             "cudaMemcpyAsync");
        must(cudaEventRecord(place->copied[i], place->stream), "cudaEventRecord");
        if (raw_record_wanted())
            crc = gb_crc32c(crc, place->slots[i], n);
        done += n;
        i = (i + 1) % SLOTS;
    }
    must(cudaStreamSynchronize(place->stream), "cudaStreamSynchronize");
    if (ok && raw_record_wanted())
        raw_record(place->id, length, crc);
    return ok;
}

static void fetch(struct raw_place *place, int i, uint64_t offset, uint64_t length) {
    size_t n = length - offset < place->slot_bytes ? length - offset : place->slot_bytes;

    must(cudaMemcpyAsync(place->slots[i], place->device + offset, n, cudaMemcpyDeviceToHost, place->stream),
         "cudaMemcpyAsync");
    must(cudaEventRecord(place->copied[i], place->stream), "cudaEventRecord");
}

static bool cuda_send(struct raw_place *place, const struct bench_wire *wire, uint64_t length) {
    uint64_t done = 0;
    bool ok = true;
    int i = 0;

    if (length)
        fetch(place, 0, 0, length);
    while (ok && done < length) {
        size_t n = length - done < place->slot_bytes ? length - done : place->slot_bytes;

        if (done + n < length)
            fetch(place, (i + 1) % SLOTS, done + n, length);
        must(cudaEventSynchronize(place->copied[i]), "cudaEventSynchronize");
        ok = bench_wire_send(wire, place->slots[i], n, false);
        done += n;
        i = (i + 1) % SLOTS;
    }
    must(cudaStreamSynchronize(place->stream), "cudaStreamSynchronize");
    return ok;
}

static uint64_t cuda_copy(struct raw_place *place, uint64_t bytes) {
    void *memory;
    float ms;

    if (!place->other) {
        must(cudaMalloc(&memory, bytes), "cudaMalloc");
        place->other = memory;
        must(cudaEventCreate(&place->start), "cudaEventCreate");
        must(cudaEventCreate(&place->end), "cudaEventCreate");
    }
    must(cudaEventRecord(place->start, place->stream), "cudaEventRecord");
    must(cudaMemcpyAsync(place->other, place->device, bytes, cudaMemcpyDeviceToDevice, place->stream),
         "cudaMemcpyAsync");
    must(cudaEventRecord(place->end, place->stream), "cudaEventRecord");
    must(cudaStreamSynchronize(place->stream), "cudaStreamSynchronize");
    must(cudaEventElapsedTime(&ms, place->start, place->end), "cudaEventElapsedTime");
    return (uint64_t)((double)ms * 1e6);
}

static uint64_t cuda_fills(struct raw_place *place, uint64_t bytes) {
    size_t half = (size_t)bytes / 2;
    uint64_t began;
    int i;

    if (!place->other) {
        take_other(place);
        take_other(place);
    }
    began = bench_now_ns();
    for (i = 0; i < RAW_FILLS; i++) {
        const char *from = place->device;
        size_t at = i % 2 ? half : 0;

        take_other(place);
        must(cudaMemsetAsync(place->device + at, i & 0xff, half, place->stream), "cudaMemsetAsync");
        must(cudaMemcpyAsync(place->device + (half - at), from + (half - at), half, cudaMemcpyDeviceToDevice,
                             place->stream),
             "cudaMemcpyAsync");
    }
    must(cudaStreamSynchronize(place->stream), "cudaStreamSynchronize");
    return bench_now_ns() - began;
}

#else

static struct raw_place *cuda_make(uint64_t bytes, size_t slot_bytes) {
    (void)bytes;
    (void)slot_bytes;
    bench_die("built without CUDA");
}

static bool cuda_receive(struct raw_place *place, const struct bench_wire *wire, const void *early, size_t have,
                         uint64_t length) {
    (void)place;
    (void)wire;
    (void)early;
    (void)have;
    (void)length;
    return false;
}

static bool cuda_send(struct raw_place *place, const struct bench_wire *wire, uint64_t length) {
    (void)place;
    (void)wire;
    (void)length;
    return false;
}

static uint64_t cuda_copy(struct raw_place *place, uint64_t bytes) {
    (void)place;
    (void)bytes;
    return 0;
}

static uint64_t cuda_fills(struct raw_place *place, uint64_t bytes) {
    (void)place;
    (void)bytes;
    return 0;
}

#endif

const struct raw_kind raw_cuda = {cuda_make, cuda_receive, cuda_send, cuda_copy, cuda_fills};
