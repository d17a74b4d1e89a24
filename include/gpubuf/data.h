/* Bytes, up and down. Part of <gpubuf/gpubuf.h>. */
#ifndef GPUBUF_DATA_H
#define GPUBUF_DATA_H

#include <string.h>

#include <gpubuf/client.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GPUBUF_UNKNOWN UINT64_MAX

/* Puts up to size bytes into data: how many, 0 at the end, or -1 (errno tells why) to give up. */
typedef int64_t gpubuf_read_fn(void *arg, void *data, size_t size);
/* Takes all of data[0..size): 0, or -1 (errno tells why) to give up. */
typedef int gpubuf_write_fn(void *arg, const void *data, size_t size);
/* Called by the calling thread at the start, at the end and some ten times a second between. total is GPUBUF_UNKNOWN as
 * long as it is. Anything but 0 breaks the transfer off, with GPUBUF_INTERRUPTED. */
typedef int gpubuf_progress_fn(void *arg, uint64_t done, uint64_t total);

/* Where bytes come from. Made by one of the three below. */
struct gpubuf_source {
    const void *memory;
    int fd;
    gpubuf_read_fn *read;
    void *arg;
    int64_t offset;
    uint64_t bytes;
};

/* Where bytes go. */
struct gpubuf_target {
    void *memory;
    int fd;
    gpubuf_write_fn *write;
    void *arg;
    int64_t offset;
    uint64_t bytes; /* room in memory */
};

static inline struct gpubuf_source gpubuf_from_memory(const void *memory, uint64_t bytes) {
    struct gpubuf_source source;

    memset(&source, 0, sizeof(source));
    source.memory = memory != NULL ? memory : "";
    source.fd = -1;
    source.bytes = bytes;
    return source;
}

/* bytes from offset on; the descriptor's own position does not move. offset -1: from where it stands, for pipes.
 * bytes GPUBUF_UNKNOWN: to the end. */
static inline struct gpubuf_source gpubuf_from_fd(int fd, int64_t offset, uint64_t bytes) {
    struct gpubuf_source source;

    memset(&source, 0, sizeof(source));
    source.fd = fd;
    source.offset = offset;
    source.bytes = bytes;
    return source;
}

static inline struct gpubuf_source gpubuf_from_call(gpubuf_read_fn *read, void *arg, uint64_t bytes) {
    struct gpubuf_source source;

    memset(&source, 0, sizeof(source));
    source.fd = -1;
    source.read = read;
    source.arg = arg;
    source.bytes = bytes;
    return source;
}

static inline struct gpubuf_target gpubuf_to_memory(void *memory, uint64_t bytes) {
    struct gpubuf_target target;

    memset(&target, 0, sizeof(target));
    target.memory = memory;
    target.fd = -1;
    target.bytes = bytes;
    return target;
}

/* From offset on; offset -1: where it stands, for pipes. */
static inline struct gpubuf_target gpubuf_to_fd(int fd, int64_t offset) {
    struct gpubuf_target target;

    memset(&target, 0, sizeof(target));
    target.fd = fd;
    target.offset = offset;
    target.bytes = GPUBUF_UNKNOWN;
    return target;
}

static inline struct gpubuf_target gpubuf_to_call(gpubuf_write_fn *write, void *arg) {
    struct gpubuf_target target;

    memset(&target, 0, sizeof(target));
    target.fd = -1;
    target.write = write;
    target.arg = arg;
    target.bytes = GPUBUF_UNKNOWN;
    return target;
}

/* --- any request -------------------------------------------------------------------------------------------------- */

/* Makes any request with a body that is read from source. It is repeated only where source can be read twice. method,
 * target, headers and the answer are those of gpubuf_request(). Returns 0 for every status below 400; else -1. Errors:
 * INPUT_FAILED; that of the problem document. */
int gpubuf_request_from(gpubuf_client *client, const char *method, const char *target, const char *const *headers,
                        struct gpubuf_source source, struct gpubuf_error *err);

/* --- whole buffers ------------------------------------------------------------------------------------------------ */

/* What a buffer is after it was written. gpubuf_answer_of() has all of it as JSON. */
struct gpubuf_buffer {
    char name[GPUBUF_NAME_SIZE];
    char session[GPUBUF_NAME_SIZE];
    uint64_t bytes;
    char dtype[GPUBUF_WORD_SIZE];
    unsigned ndim;
    uint64_t shape[GPUBUF_DIMS_MAX];
    char kind[GPUBUF_WORD_SIZE]; /* device, shared, managed, pinned, pageable, ipc */
    uint64_t generation;
    bool has_crc32c;
    uint32_t crc32c;
    bool created; /* it was not there before (201) */
    uint64_t room[8];
};

struct gpubuf_put_params {
    const char *format; /* raw, npy, safetensors; NULL: what the bytes begin as */
    const char *dtype;  /* of raw bytes */
    const char *shape;  /* "2,3"; "" is a scalar */
    const char *stream;
    const char *kind;
    const char *pool;
    const char *device;
    const char *side;
    bool mirrored;
    bool in_place;
    struct gpubuf_opt offset;     /* set: into the buffer that is there, from this byte on */
    const char *slice;            /* into these elements of it, "0:16,3" */
    const char *content_encoding; /* gzip, deflate, zstd: of the source's bytes, which are sent as they are */
    /* Over that many connections at a time, as an upload in parts: of raw bytes from memory or from a descriptor with
     * an offset, where dtype and shape, or bytes alone, say what the buffer is to be. 0 and 1: one. */
    uint32_t connections;
    uint64_t part_bytes; /* 0: 32 MiB */
    /* The CRC32C is computed here while the bytes are sent, and held against the daemon's: parts before the new bytes
     * become visible, else afterwards. Of raw bytes and .npy without a content encoding. */
    bool check;
    gpubuf_progress_fn *progress;
    void *progress_arg;
    struct gpubuf_how how;
    const char *durability; /* none, behind, sync; NULL: as the buffer has it, and of a new one its session's */
    const char *spill;      /* never, host, disk; NULL: the same */
    /* The most bytes that the upload may bring. Of a source of unknown length, memory for them is reserved at once. */
    struct gpubuf_opt max_bytes;
    const char *tensor; /* of a buffer of many tensors: into this one; offset and slice are of it */
    bool pack;          /* a safetensors file of one tensor is kept as a file of many is */
    uint64_t room[2];
};

/* Uploads: makes the buffer or replaces it, at once when the last byte has arrived. source is read by the calling
 * thread. An upload that breaks off changes nothing unless in_place, offset or slice is set. After a transient
 * failure it is repeated if the source can be read again (memory, a descriptor with an offset), and so is a write into
 * a buffer whose bytes had to be loaded from the disk first. With durability "sync" the bytes are on disk when the call
 * returns. Returns 0 or -1. Errors: SHAPE_MISMATCH, UNSUPPORTED_ARRAY, QUOTA_EXCEEDED, OUT_OF_MEMORY,
 * PRECONDITION_FAILED, BUFFER_BUSY, MAPPED, SEALED, INPUT_FAILED, CHECK_FAILED; of durable buffers STORAGE_FAILED,
 * STORAGE_UNAVAILABLE; with in_place, offset or slice DEPENDENCY_FAILED, NOT_LOADED and those of the load. */
int gpubuf_put(gpubuf_client *client, const char *session, const char *buffer, struct gpubuf_source source,
               const struct gpubuf_put_params *params, struct gpubuf_buffer *ret, struct gpubuf_error *err);

struct gpubuf_get_params {
    /* raw (NULL is that), npy, safetensors; own: of a buffer of many tensors its file, of others raw, not with check */
    const char *format;
    const char *stream;
    struct gpubuf_opt offset; /* that many bytes from here */
    struct gpubuf_opt length;
    const char *slice; /* elements, by numpy's basic indexing: "0:16,3,:" */
    /* Over that many connections at a time, into memory or a descriptor with an offset; all parts are of one
     * generation. */
    uint32_t connections;
    uint64_t part_bytes; /* 0: 32 MiB */
    bool check;          /* the CRC32C of a whole buffer, raw or .npy, is held against the one that the daemon states */
    gpubuf_progress_fn *progress;
    void *progress_arg;
    struct gpubuf_how how; /* if_none_match: GPUBUF_UNCHANGED */
    const char *tensor;    /* of a buffer of many tensors: this one; offset and slice are of it */
    uint64_t room[7];
};

/* What came. */
struct gpubuf_got {
    uint64_t bytes; /* that were written to the target */
    char dtype[GPUBUF_WORD_SIZE];
    unsigned ndim; /* of what was asked for, a slice's */
    uint64_t shape[GPUBUF_DIMS_MAX];
    uint64_t generation;
    char etag[GPUBUF_ETAG_SIZE];
};

/* Downloads the bytes into target. After a transient failure the download resumes where it stopped, in the same
 * generation; after any other failure the target has some of the bytes. Returns 0, -1, or GPUBUF_UNCHANGED if the
 * entity tag still matches. Errors: BUFFER_NOT_FOUND, CONTENT_LOST, BUFFER_PARTIAL, BUFFER_BUSY,
 * RANGE_NOT_SATISFIABLE, OUTPUT_FAILED, CHECK_FAILED. */
int gpubuf_get(gpubuf_client *client, const char *session, const char *buffer, struct gpubuf_target target,
               const struct gpubuf_get_params *params, struct gpubuf_got *ret, struct gpubuf_error *err);

/* --- many tensors in one file ------------------------------------------------------------------------------------- */

struct gpubuf_tensors_params {
    const char *names; /* of a download: "a,b"; NULL: all, or those that prefix and label pick */
    const char *label; /* of a download: "name" or "name=value" */
    const char *prefix;
    const char *stream;
    const char *kind; /* of an upload, as pool and device */
    const char *pool;
    const char *device;
    const char *content_encoding;
    gpubuf_progress_fn *progress;
    void *progress_arg;
    struct gpubuf_how how;
    uint64_t room[8];
};

struct gpubuf_tensors {
    uint64_t tensors;
    uint64_t created;
    uint64_t replaced;
    uint64_t bytes;
};

/* Uploads a safetensors file from source: all its tensors become buffers, or none does. Returns 0 or -1. Errors:
 * UNSUPPORTED_ARRAY, SHAPE_MISMATCH, QUOTA_EXCEEDED, OUT_OF_MEMORY, INPUT_FAILED. */
int gpubuf_tensors_put(gpubuf_client *client, const char *session, struct gpubuf_source source,
                       const struct gpubuf_tensors_params *params, struct gpubuf_tensors *ret,
                       struct gpubuf_error *err);

/* Downloads buffers as one safetensors file into target. *ret_bytes: the size of the file. Returns 0 or -1. Errors:
 * BUFFER_NOT_FOUND, CONTENT_LOST, UNSUPPORTED_ARRAY, OUTPUT_FAILED. */
int gpubuf_tensors_get(gpubuf_client *client, const char *session, struct gpubuf_target target,
                       const struct gpubuf_tensors_params *params, uint64_t *ret_bytes, struct gpubuf_error *err);

#ifdef __cplusplus
}
#endif

#endif
