/* The ceiling of the host backend: recv straight into memory that is resident and reused, send straight from it. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "raw.h"
#include "util.h"

#define PIECE_BYTES ((size_t)1 << 20)

struct raw_place {
    uint64_t bytes;
    char *memory;
    char *other; /* the target of copies; with a record, of every second upload */
    long id;     /* of its record */
    long generation;
    char *header; /* a page, which is written before the bytes of a file */
};

bool raw_receive_all(const struct bench_wire *wire, void *memory, size_t bytes) {
    size_t have = 0;

    while (have < bytes) {
        ssize_t n = bench_wire_recv(wire, (char *)memory + have, bytes - have);

        if (n <= 0)
            return false;
        have += (size_t)n;
    }
    return true;
}

static struct raw_place *host_make(uint64_t bytes, size_t slot_bytes) {
    struct raw_place *place = calloc(1, sizeof *place);

    (void)slot_bytes;
    if (!place)
        bench_die("no memory");
    place->bytes = bytes;
    place->memory = bench_resident(bytes);
    place->id = raw_record_id();
    place->header = bench_resident(DIRECT_ALIGN);
    return place;
}

/* Receives in pieces of the daemon's size, so that the checksum reads bytes that are still in the cache. */
static bool receive_recorded(struct raw_place *place, const struct bench_wire *wire, size_t have, uint64_t length) {
    uint32_t crc = gb_crc32c(0, place->memory, have);

    while (have < length) {
        size_t want = length - have < PIECE_BYTES ? (size_t)(length - have) : PIECE_BYTES;
        ssize_t n = bench_wire_recv(wire, place->memory + have, want);

        if (n <= 0)
            return false;
        crc = gb_crc32c(crc, place->memory + have, (size_t)n);
        have += (size_t)n;
    }
    raw_record(place->id, length, crc);
    return true;
}

static bool receive_durable(struct raw_place *place, const struct bench_wire *wire, size_t have, uint64_t length) {
    struct raw_body body;

    raw_body_begin(&body, place->id, ++place->generation, place->memory, have, length);
    while (body.have < length && raw_body_next(&body, wire))
        continue;
    if (body.have == length)
        raw_body_complete(&body, place->header);
    else
        raw_body_discard(&body);
    return body.have == length;
}

/* The bytes before stay as they are until the record of the new ones is committed. */
static void take_other(struct raw_place *place, uint64_t bytes) {
    char *memory = place->memory;

    place->memory = place->other ? place->other : bench_resident(bytes);
    place->other = memory;
}

static bool host_receive(struct raw_place *place, const struct bench_wire *wire, const void *early, size_t have,
                         uint64_t length) {
    if (raw_record_wanted())
        take_other(place, place->bytes);
    memcpy(place->memory, early, have);
    if (raw_disk_wanted())
        return receive_durable(place, wire, have, length);
    if (raw_record_wanted())
        return receive_recorded(place, wire, have, length);
    return raw_receive_all(wire, place->memory + have, length - have);
}

static bool host_send(struct raw_place *place, const struct bench_wire *wire, uint64_t length) {
    return bench_wire_send(wire, place->memory, length, false);
}

static uint64_t host_copy(struct raw_place *place, uint64_t bytes) {
    struct timespec from, to;

    if (!place->other)
        place->other = bench_resident(bytes);
    clock_gettime(CLOCK_MONOTONIC, &from);
    memcpy(place->other, place->memory, bytes);
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (uint64_t)(to.tv_sec - from.tv_sec) * 1000000000u + (uint64_t)to.tv_nsec - (uint64_t)from.tv_nsec;
}

static uint64_t host_fills(struct raw_place *place, uint64_t bytes) {
    size_t half = (size_t)bytes / 2;
    uint64_t began;
    int i;

    if (!place->other)
        place->other = bench_resident(bytes);
    began = bench_now_ns();
    for (i = 0; i < RAW_FILLS; i++) {
        char *from = place->memory;
        size_t at = i % 2 ? half : 0;

        memset(place->other + at, i, half);
        memcpy(place->other + (half - at), from + (half - at), half);
        place->memory = place->other;
        place->other = from;
    }
    return bench_now_ns() - began;
}

const struct raw_kind raw_host = {host_make, host_receive, host_send, host_copy, host_fills};
