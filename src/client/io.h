/* Bytes between the caller and a request: readers of sources, writers of targets, progress. */
#ifndef GBC_FLOW_H
#define GBC_FLOW_H

#include "client/client.h"
#include "client/crc.h"

/* What progress tells; shared by the threads of a transfer. */
struct gbc_progress {
    gpubuf_progress_fn *fn;
    void *arg;
    atomic_uint_fast64_t done;
    uint64_t total;
};

void gbc_progress_init(struct gbc_progress *progress, gpubuf_progress_fn *fn, void *arg, uint64_t total);
int gbc_progress_tick(void *progress); /* of gbc_request; calls the caller's */

struct gbc_reader {
    struct gpubuf_source source;
    struct gbc_progress *progress;
    uint64_t at; /* bytes that were read */
    bool summed; /* fills sum */
    struct gbc_sum sum;
    bool crc_only; /* fills crc: of bytes that are known to be no file */
    uint32_t crc;
    struct gbc_up up; /* what a request takes; up.bytes is how many there are */
};

/* Where the source knows its end, so does the reader afterwards: -1 with INPUT_FAILED or BAD_ARGUMENT. */
int gbc_reader_init(struct gbc_reader *reader, struct gpubuf_source source, struct gbc_progress *progress, bool summed,
                    struct gpubuf_error *err);
/* Whether parts of it can be read at any time, in any order. */
bool gbc_source_random(const struct gpubuf_source *source);
/* bytes of it, from offset on; of a random one. */
struct gpubuf_source gbc_source_part(const struct gpubuf_source *source, uint64_t offset, uint64_t bytes);

struct gbc_writer {
    struct gpubuf_target target;
    struct gbc_progress *progress;
    uint64_t at;     /* bytes that were written */
    uint64_t expect; /* that are to come in this answer; GPUBUF_UNKNOWN */
    bool summed;
    struct gbc_sum sum;
    bool crc_only;
    uint32_t crc;
};

void gbc_writer_init(struct gbc_writer *writer, struct gpubuf_target target, struct gbc_progress *progress,
                     bool summed);
/* A gbc_down.write. */
int gbc_writer_write(void *writer, const void *data, size_t bytes, struct gpubuf_error *err);
bool gbc_target_random(const struct gpubuf_target *target);
struct gpubuf_target gbc_target_part(const struct gpubuf_target *target, uint64_t offset, uint64_t bytes);
/* 0, or -1 with OUTPUT_FAILED: memory has no room for so many bytes. */
int gbc_target_room(const struct gpubuf_target *target, uint64_t bytes, struct gpubuf_error *err);

#endif
