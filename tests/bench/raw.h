/* The memory of the raw server: the destination of uploads and the source of downloads. */
#ifndef GB_BENCH_RAW_H
#define GB_BENCH_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "direct.h"
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
    /* RAW_FILLS fills of a half, each into other memory with a copy of the other half, as a write that readers see as a
     * whole needs them, all on one stream; then waits. Returns the nanoseconds. */
    uint64_t (*fills)(struct raw_place *place, uint64_t bytes);
};

#define RAW_FILLS 1000

extern const struct raw_kind raw_host;
extern const struct raw_kind raw_cuda;

/* Reads the whole place into memory; returns false on failure. */
bool raw_receive_all(const struct bench_wire *wire, void *memory, size_t bytes);

/* raw_record.c */
void raw_record_open(const char *path); /* of the database */
bool raw_record_wanted(void);
long raw_record_id(void);                                  /* of a place */
void raw_record(long id, uint64_t bytes, uint32_t crc32c); /* returns when the record is committed */

/* raw_disk.c: uploads that are durable */
void raw_disk_open(const char *dir);
bool raw_disk_wanted(void);

struct raw_body {
    long id; /* of the record, of which this is one generation */
    long generation;
    char *memory; /* aligned, with room for whole pages */
    uint64_t bytes;
    uint64_t have;    /* of them, received and in the checksums */
    uint64_t written; /* to the file, or begun */
    struct direct_file file;
    uint32_t *blocks; /* a checksum each */
};

/* have: bytes that are at memory already. */
void raw_body_begin(struct raw_body *body, long id, long generation, char *memory, size_t have, uint64_t bytes);
/* Receives up to the end of a block, which is then written beside. Returns how many bytes came; 0: none, the client
 * closed. */
size_t raw_body_next(struct raw_body *body, const struct bench_wire *wire);
/* All have come: returns when they are on disk and the record says so. header: an aligned page. */
void raw_body_complete(struct raw_body *body, char *header);
void raw_body_discard(struct raw_body *body);

/* raw_record.c: as raw_record, in a commit that waits for the disk, and with the bytes if they are small. */
void raw_record_stored(const struct raw_body *body, uint32_t crc32c);

#endif
