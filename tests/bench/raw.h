/* The memory of the raw server: the destination of uploads and the source of downloads. */
#ifndef GB_BENCH_RAW_H
#define GB_BENCH_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire.h"

struct raw_place;

/* Makes a place: resident host memory of `bytes`, or two pinned slots and device memory of `bytes`. */
struct raw_kind {
    struct raw_place *(*make)(uint64_t bytes, size_t slot_bytes);
    /* Receives length bytes, of which the first `have` are at `early` already. Returns false if the client closed. */
    bool (*receive)(struct raw_place *place, const struct bench_wire *wire, const void *early, size_t have,
                    uint64_t length);
    bool (*send)(struct raw_place *place, const struct bench_wire *wire, uint64_t length);
    /* Copies the whole place to another of that size, made at the first call, and waits. Returns the nanoseconds, by
     * the device's clock if there is one. */
    uint64_t (*copy)(struct raw_place *place, uint64_t bytes);
};

extern const struct raw_kind raw_host;
extern const struct raw_kind raw_cuda;

/* Reads the whole place into memory; returns false on failure. */
bool raw_receive_all(const struct bench_wire *wire, void *memory, size_t bytes);

/* raw_record.c */
void raw_record_open(const char *path); /* of the database */
bool raw_record_wanted(void);
long raw_record_id(void);                                  /* of a place */
void raw_record(long id, uint64_t bytes, uint32_t crc32c); /* returns when the record is committed */

#endif
