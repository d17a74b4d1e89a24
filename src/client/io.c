#include "client/io.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void gbc_progress_init(struct gbc_progress *progress, gpubuf_progress_fn *fn, void *arg, uint64_t total) {
    progress->fn = fn;
    progress->arg = arg;
    atomic_init(&progress->done, 0);
    progress->total = total;
}

int gbc_progress_tick(void *arg) {
    struct gbc_progress *progress = arg;

    return progress->fn ? progress->fn(progress->arg, atomic_load(&progress->done), progress->total) : 0;
}

/* Descriptors that do not block are waited for. */
static void wait_for(int fd, short events) {
    struct pollfd p = {.fd = fd, .events = events};

    poll(&p, 1, 100);
}

/* --- readers ------------------------------------------------------------------------------------------------------ */

bool gbc_source_random(const struct gpubuf_source *source) {
    return source->memory || (!source->read && source->offset >= 0);
}

struct gpubuf_source gbc_source_part(const struct gpubuf_source *source, uint64_t offset, uint64_t bytes) {
    struct gpubuf_source part = *source;

    if (part.memory)
        part.memory = (const char *)part.memory + offset;
    else
        part.offset += (int64_t)offset;
    part.bytes = bytes;
    return part;
}

static int64_t read_fd(struct gbc_reader *r, void *data, size_t size, struct gpubuf_error *err) {
    const struct gpubuf_source *s = &r->source;

    for (;;) {
        ssize_t n =
            s->offset < 0 ? read(s->fd, data, size) : pread(s->fd, data, size, (off_t)((uint64_t)s->offset + r->at));

        if (n >= 0)
            return n;
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            wait_for(s->fd, POLLIN);
        else if (errno != EINTR)
            return gbc_error_errno(err, GPUBUF_INPUT_FAILED, "read", errno);
    }
}

static int64_t read_some(struct gbc_reader *r, void *data, size_t size, struct gpubuf_error *err) {
    int64_t n;

    if (r->source.memory) {
        memcpy(data, (const char *)r->source.memory + r->at, size);
        return (int64_t)size;
    }
    if (!r->source.read)
        return read_fd(r, data, size, err);
    errno = 0;
    n = r->source.read(r->source.arg, data, size);
    if (n < 0 || (uint64_t)n > size)
        return errno != 0 && n < 0 ? gbc_error_errno(err, GPUBUF_INPUT_FAILED, "read", errno)
                                   : gbc_error_set(err, GPUBUF_INPUT_FAILED, "the source's read() gave up");
    return n;
}

static int64_t reader_read(void *arg, void *data, size_t size, struct gpubuf_error *err) {
    struct gbc_reader *r = arg;
    uint64_t left = r->up.bytes == GPUBUF_UNKNOWN ? size : r->up.bytes - r->at;
    int64_t n;

    if (size > left)
        size = (size_t)left;
    if (size == 0)
        return 0;
    n = read_some(r, data, size, err);
    if (n < 0)
        return -1;
    if (n == 0 && r->up.bytes != GPUBUF_UNKNOWN)
        return gbc_error_set(err, GPUBUF_INPUT_FAILED, "the source ended after %" PRIu64 " of %" PRIu64 " bytes", r->at,
                             r->up.bytes);
    if (r->summed)
        gbc_sum_add(&r->sum, data, (size_t)n);
    if (r->crc_only)
        r->crc = gbc_crc32c(r->crc, data, (size_t)n);
    r->at += (uint64_t)n;
    if (r->progress)
        atomic_fetch_add(&r->progress->done, (uint64_t)n);
    return n;
}

static int reader_rewind(void *arg) {
    struct gbc_reader *r = arg;

    if (r->at > 0 && !gbc_source_random(&r->source))
        return -1;
    if (r->progress)
        atomic_fetch_sub(&r->progress->done, r->at);
    r->at = 0;
    r->crc = 0;
    memset(&r->sum, 0, sizeof(r->sum));
    return 0;
}

/* What a file has from where reading begins. */
static void measure(struct gpubuf_source *source) {
    struct stat st;
    off_t from = source->offset >= 0 ? (off_t)source->offset : lseek(source->fd, 0, SEEK_CUR);

    if (from >= 0 && fstat(source->fd, &st) == 0 && S_ISREG(st.st_mode))
        source->bytes = st.st_size > from ? (uint64_t)(st.st_size - from) : 0;
}

int gbc_reader_init(struct gbc_reader *reader, struct gpubuf_source source, struct gbc_progress *progress, bool summed,
                    struct gpubuf_error *err) {
    memset(reader, 0, sizeof(*reader));
    if (!source.memory && !source.read && source.fd < 0)
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "the source has neither memory nor a descriptor nor a function");
    if (source.memory && source.bytes == GPUBUF_UNKNOWN)
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "a source in memory says how many bytes it has");
    if (!source.memory && !source.read && source.bytes == GPUBUF_UNKNOWN)
        measure(&source);
    reader->source = source;
    reader->progress = progress;
    reader->summed = summed;
    reader->up = (struct gbc_up){.read = reader_read,
                                 .rewind = reader_rewind,
                                 .arg = reader,
                                 .bytes = source.bytes,
                                 .again = gbc_source_random(&source)};
    return 0;
}

/* --- writers ------------------------------------------------------------------------------------------------------ */

bool gbc_target_random(const struct gpubuf_target *target) {
    return target->memory || (!target->write && target->offset >= 0);
}

struct gpubuf_target gbc_target_part(const struct gpubuf_target *target, uint64_t offset, uint64_t bytes) {
    struct gpubuf_target part = *target;

    if (part.memory)
        part.memory = (char *)part.memory + offset;
    else
        part.offset += (int64_t)offset;
    part.bytes = bytes;
    return part;
}

int gbc_target_room(const struct gpubuf_target *target, uint64_t bytes, struct gpubuf_error *err) {
    bool memory = !target->write && target->fd < 0;

    if (memory && (bytes > target->bytes || (bytes > 0 && !target->memory)))
        return gbc_error_set(err, GPUBUF_OUTPUT_FAILED, "%" PRIu64 " bytes come, the memory has room for %" PRIu64,
                             bytes, target->memory ? target->bytes : 0);
    return 0;
}

void gbc_writer_init(struct gbc_writer *writer, struct gpubuf_target target, struct gbc_progress *progress,
                     bool summed) {
    memset(writer, 0, sizeof(*writer));
    writer->target = target;
    writer->progress = progress;
    writer->summed = summed;
}

static int write_fd(const struct gbc_writer *w, const char *data, size_t bytes, struct gpubuf_error *err) {
    const struct gpubuf_target *t = &w->target;
    size_t at = 0;

    while (at < bytes) {
        ssize_t n = t->offset < 0 ? write(t->fd, data + at, bytes - at)
                                  : pwrite(t->fd, data + at, bytes - at, (off_t)((uint64_t)t->offset + w->at + at));

        if (n > 0)
            at += (size_t)n;
        else if (n == 0)
            return gbc_error_errno(err, GPUBUF_OUTPUT_FAILED, "write", EIO);
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            wait_for(t->fd, POLLOUT);
        else if (errno != EINTR)
            return gbc_error_errno(err, GPUBUF_OUTPUT_FAILED, "write", errno);
    }
    return 0;
}

static int write_some(const struct gbc_writer *w, const void *data, size_t bytes, struct gpubuf_error *err) {
    if (w->target.write) {
        errno = 0;
        if (w->target.write(w->target.arg, data, bytes) == 0)
            return 0;
        return errno != 0 ? gbc_error_errno(err, GPUBUF_OUTPUT_FAILED, "write", errno)
                          : gbc_error_set(err, GPUBUF_OUTPUT_FAILED, "the target's write() gave up");
    }
    if (w->target.fd >= 0)
        return write_fd(w, data, bytes, err);
    if (gbc_target_room(&w->target, w->at + bytes, err) < 0)
        return -1;
    memcpy((char *)w->target.memory + w->at, data, bytes);
    return 0;
}

int gbc_writer_write(void *arg, const void *data, size_t bytes, struct gpubuf_error *err) {
    struct gbc_writer *w = arg;

    if (bytes == 0)
        return 0;
    if (write_some(w, data, bytes, err) < 0)
        return -1;
    if (w->summed)
        gbc_sum_add(&w->sum, data, bytes);
    if (w->crc_only)
        w->crc = gbc_crc32c(w->crc, data, bytes);
    w->at += bytes;
    if (w->progress)
        atomic_fetch_add(&w->progress->done, bytes);
    return 0;
}
