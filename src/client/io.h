/* Bytes between the caller and a request: readers of sources, writers of targets, their checksums, progress, and
 * work in parts over several connections at a time. */
#ifndef GBC_FLOW_H
#define GBC_FLOW_H

#include "client/internal.h"

/* --- checksums ---------------------------------------------------------------------------------------------------- */

#define GBC_SUM_HEAD 12

/* Of a body and of the tensor in it: where the body begins as a .npy or a safetensors file of one tensor, that is what
 * follows the header. Zeros are an empty one. */
struct gbc_sum {
    uint64_t bytes; /* that passed */
    unsigned char head[GBC_SUM_HEAD];
    uint64_t header_bytes; /* 0: it has none */
    uint32_t header_crc;
    uint32_t payload_crc; /* of all where there is no header */
};

/* Of the tensor of that many bytes: false where what passed has no such tensor. */
bool gbc_sum_of(const struct gbc_sum *sum, uint64_t tensor_bytes, uint32_t *ret);

/* --- sources and targets ------------------------------------------------------------------------------------------ */

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
/* 0, or -1 with OUTPUT_FAILED: memory has no room for that many bytes. */
int gbc_target_room(const struct gpubuf_target *target, uint64_t bytes, struct gpubuf_error *err);

/* --- parts -------------------------------------------------------------------------------------------------------- */

#define GBC_PART_BYTES ((uint64_t)32 << 20)
#define GBC_CONNECTIONS_MAX 64
#define GBC_PARTS_MAX 10000 /* of an upload, as the daemon permits */

uint64_t gbc_part_bytes(uint64_t asked); /* 0: the default */

struct gbc_part {
    uint64_t offset;
    uint64_t bytes;
    uint32_t crc; /* of what passed, when it was asked for */
};

/* Does one: 0, or -1 with err. On any thread; request tells of an interruption through gbc_parts_tick. */
typedef int gbc_part_fn(void *arg, struct gbc_conn *conn, struct gbc_part *part, struct gpubuf_error *err);

struct gbc_parts {
    struct gbc_part *part;
    size_t count;
    uint64_t bytes; /* of all */
    gbc_part_fn *fn;
    void *arg;
    struct gbc_settings *set;
    struct gbc_progress *progress;
    atomic_size_t next;
    atomic_int stop;
};

/* Cuts bytes into parts of part_bytes, larger ones where there would be too many. -1: no memory. */
int gbc_parts_init(struct gbc_parts *parts, uint64_t bytes, uint64_t part_bytes);
void gbc_parts_done(struct gbc_parts *parts);

/* Does them all on up to `connections` threads, while the calling one tells progress. 0, or -1 with the first error. */
int gbc_parts_run(struct gbc_parts *parts, unsigned connections, struct gpubuf_error *err);

/* A tick of the requests that fn makes; arg: the parts. */
int gbc_parts_tick(void *parts);

/* The CRC32C of all, from those of the parts. */
uint32_t gbc_parts_crc(const struct gbc_parts *parts);

#endif
