/* Bytes between the caller and a request. A reader or a writer is one pass over a source or a target, and can start
 * again. Parts are done by threads that take the next one until none is left; the first error stops all. Progress is
 * reported on the caller's thread alone. transfer.c calls it. */
#include "client/io.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "client/http.h"

#define HEADER_MAX ((uint64_t)128 << 20)
#define POLL_NS 100000000l

/* --- headers ------------------------------------------------------------------------------------------------------ */

static uint64_t little(const unsigned char *at, unsigned bytes) {
    uint64_t value = 0;

    while (bytes-- > 0)
        value = value << 8 | at[bytes];
    return value;
}

/* How long the header is that begins so; 0: it is not one. */
static uint64_t header_of(const unsigned char head[GBC_SUM_HEAD]) {
    uint64_t n = little(head, 8);

    if (memcmp(head, "\x93NUMPY", 6) == 0)
        return head[6] == 1 ? 10 + little(head + 8, 2) : 12 + little(head + 8, 4);
    return head[8] == '{' && n > 4 && n < HEADER_MAX ? 8 + n : 0;
}

static void add_to_header(struct gbc_sum *sum, const unsigned char **data, size_t *bytes) {
    uint64_t left = sum->header_bytes - sum->bytes;
    size_t n = *bytes < left ? *bytes : (size_t)left;

    sum->header_crc = gb_crc32c(sum->header_crc, *data, n);
    sum->bytes += n;
    *data += n;
    *bytes -= n;
}

static void sum_add(struct gbc_sum *sum, const void *data, size_t bytes) {
    const unsigned char *at = data;

    while (bytes > 0 && sum->bytes < GBC_SUM_HEAD) {
        sum->head[sum->bytes++] = *at;
        sum->payload_crc = gb_crc32c(sum->payload_crc, at++, 1);
        bytes--;
        if (sum->bytes == GBC_SUM_HEAD && (sum->header_bytes = header_of(sum->head)) > 0) {
            sum->header_crc = sum->payload_crc;
            sum->payload_crc = 0;
            if (sum->header_bytes < GBC_SUM_HEAD)
                sum->header_bytes = GBC_SUM_HEAD;
        }
    }
    if (bytes > 0 && sum->bytes < sum->header_bytes)
        add_to_header(sum, &at, &bytes);
    if (bytes > 0)
        sum->payload_crc = gb_crc32c(sum->payload_crc, at, bytes);
    sum->bytes += bytes;
}

bool gbc_sum_of(const struct gbc_sum *sum, uint64_t tensor_bytes, uint32_t *ret) {
    uint64_t header = sum->bytes < sum->header_bytes ? sum->bytes : sum->header_bytes;

    if (tensor_bytes == sum->bytes) /* no header after all, only bytes that look like one */
        *ret = gb_crc32c_join(sum->header_crc, sum->payload_crc, sum->bytes - header);
    else if (header > 0 && tensor_bytes == sum->bytes - header)
        *ret = sum->payload_crc;
    else
        return false;
    return true;
}

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
        sum_add(&r->sum, data, (size_t)n);
    if (r->crc_only)
        r->crc = gb_crc32c(r->crc, data, (size_t)n);
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
        sum_add(&w->sum, data, bytes);
    if (w->crc_only)
        w->crc = gb_crc32c(w->crc, data, bytes);
    w->at += bytes;
    if (w->progress)
        atomic_fetch_add(&w->progress->done, bytes);
    return 0;
}

/* --- parts -------------------------------------------------------------------------------------------------------- */

uint64_t gbc_part_bytes(uint64_t asked) {
    return asked > 0 ? asked : GBC_PART_BYTES;
}

int gbc_parts_init(struct gbc_parts *parts, uint64_t bytes, uint64_t part_bytes) {
    uint64_t size = gbc_part_bytes(part_bytes);
    uint64_t at = 0;
    size_t i;

    memset(parts, 0, sizeof(*parts));
    if (bytes / size >= GBC_PARTS_MAX)
        size = bytes / GBC_PARTS_MAX + 1;
    parts->bytes = bytes;
    parts->count = (size_t)(bytes / size + (bytes % size != 0));
    parts->part = calloc(parts->count + 1, sizeof(*parts->part));
    if (!parts->part)
        return -1;
    for (i = 0; i < parts->count; i++) {
        parts->part[i].offset = at;
        parts->part[i].bytes = bytes - at < size ? bytes - at : size;
        at += parts->part[i].bytes;
    }
    return 0;
}

void gbc_parts_done(struct gbc_parts *parts) {
    free(parts->part);
    parts->part = NULL;
}

int gbc_parts_tick(void *arg) {
    struct gbc_parts *parts = arg;

    return atomic_load(&parts->stop);
}

uint32_t gbc_parts_crc(const struct gbc_parts *parts) {
    uint32_t crc = 0;
    size_t i;

    for (i = 0; i < parts->count; i++)
        crc = gb_crc32c_join(crc, parts->part[i].crc, parts->part[i].bytes);
    return crc;
}

/* --- threads ------------------------------------------------------------------------------------------------------ */

struct crew {
    struct gbc_parts *parts;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    unsigned working;
    struct gpubuf_error first; /* of the parts' errors */
};

static void fail(struct crew *crew, const struct gpubuf_error *why) {
    pthread_mutex_lock(&crew->lock);
    if (crew->first.code == GPUBUF_OK)
        crew->first = *why;
    pthread_mutex_unlock(&crew->lock);
    atomic_store(&crew->parts->stop, 1);
}

static void work(struct crew *crew) {
    struct gbc_parts *parts = crew->parts;
    struct gpubuf_error why;
    struct gbc_conn *conn;

    gbc_error_init(&why);
    conn = gbc_conn_new(parts->set, &why);
    while (conn && atomic_load(&parts->stop) == 0) {
        size_t i = atomic_fetch_add(&parts->next, 1);

        if (i >= parts->count || parts->fn(parts->arg, conn, &parts->part[i], &why) < 0)
            break;
    }
    if (why.code != GPUBUF_OK)
        fail(crew, &why);
    gbc_conn_free(conn);
}

static void *hand_main(void *arg) {
    struct crew *crew = arg;

    work(crew);
    pthread_mutex_lock(&crew->lock);
    crew->working--;
    pthread_cond_signal(&crew->moved);
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

static void check_stop(struct crew *crew) {
    struct gbc_parts *parts = crew->parts;
    struct gpubuf_error why;

    gbc_error_init(&why);
    if (atomic_load(&parts->stop) != 0)
        return;
    if (gbc_progress_tick(parts->progress) != 0)
        gbc_error_set(&why, GPUBUF_INTERRUPTED, "the progress callback asked for it");
    else if (atomic_load(&parts->set->interrupted))
        gbc_error_set(&why, GPUBUF_INTERRUPTED, "gpubuf_interrupt() asked for it");
    if (why.code != GPUBUF_OK)
        fail(crew, &why);
}

/* Until all have ended. */
static void watch(struct crew *crew) {
    pthread_mutex_lock(&crew->lock);
    while (crew->working > 0) {
        struct timespec end;

        clock_gettime(CLOCK_MONOTONIC, &end);
        end.tv_nsec += POLL_NS;
        if (end.tv_nsec >= 1000000000l) {
            end.tv_sec++;
            end.tv_nsec -= 1000000000l;
        }
        pthread_cond_timedwait(&crew->moved, &crew->lock, &end);
        pthread_mutex_unlock(&crew->lock);
        check_stop(crew);
        pthread_mutex_lock(&crew->lock);
    }
    pthread_mutex_unlock(&crew->lock);
}

static void crew_init(struct crew *crew, struct gbc_parts *parts) {
    pthread_condattr_t clock;

    crew->parts = parts;
    crew->working = 0;
    gbc_error_init(&crew->first);
    pthread_mutex_init(&crew->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&crew->moved, &clock);
    pthread_condattr_destroy(&clock);
}

static unsigned start(struct crew *crew, pthread_t *threads, unsigned wanted) {
    sigset_t all;
    sigset_t before;
    unsigned n;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (n = 0; n < wanted; n++) {
        pthread_mutex_lock(&crew->lock);
        crew->working++;
        pthread_mutex_unlock(&crew->lock);
        if (pthread_create(&threads[n], NULL, hand_main, crew) != 0) {
            pthread_mutex_lock(&crew->lock);
            crew->working--;
            pthread_mutex_unlock(&crew->lock);
            break;
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return n;
}

int gbc_parts_run(struct gbc_parts *parts, unsigned connections, struct gpubuf_error *err) {
    pthread_t threads[GBC_CONNECTIONS_MAX];
    struct crew crew;
    unsigned started;
    unsigned i;

    if (connections > GBC_CONNECTIONS_MAX)
        connections = GBC_CONNECTIONS_MAX;
    if (connections > parts->count)
        connections = (unsigned)parts->count;
    crew_init(&crew, parts);
    check_stop(&crew);
    started = start(&crew, threads, connections);
    if (started == 0 && connections > 0)
        work(&crew); /* a machine without a thread to spare */
    watch(&crew);
    for (i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    if (crew.first.code == GPUBUF_OK)
        gbc_progress_tick(parts->progress);
    pthread_cond_destroy(&crew.moved);
    pthread_mutex_destroy(&crew.lock);
    if (crew.first.code == GPUBUF_OK)
        return 0;
    if (err && err->code == GPUBUF_OK)
        *err = crew.first;
    return -1;
}
