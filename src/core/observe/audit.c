/* The audit: records of changes and refusals, on their way to the database and to a file. Repeated refusals become one
 * record with a count, so that they displace no record of a change. The pipeline of the API adds records on any
 * thread. */
#include "core/observe/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/thread.h"
#include "core/public/access.h"
#include "core/public/observe.h"
#include "core/runtime/runtime.h"
#include "model/audit.h"

/* --- audit -------------------------------------------------------------------------------------------------------- */

#define ROWS_MAX 1000000 /* as of the store */

struct gb_audit {
    enum gb_audit_mode mode;
    struct gb_audit_file *file; /* NULL: none */
    struct gb_audit_refusals *refusals;
    atomic_bool begun; /* daemon.started is noted */
};

int gb_audit_new(const struct gb_audit_config *config, struct gb_audit **ret, struct gb_error *err) {
    const char *file = config->mode != GB_AUDIT_OFF && config->file && config->file[0] ? config->file : NULL;
    uint64_t rows = config->rows > 0 ? config->rows : ROWS_MAX;
    struct gb_audit *a = calloc(1, sizeof(*a));

    if (!a)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    a->mode = config->mode;
    atomic_init(&a->begun, false);
    if (gb_audit_refusals_new(rows, config->age_us, &a->refusals, err) < 0 ||
        (file && gb_audit_file_new(file, config->file_bytes, &a->file, err) < 0)) {
        gb_audit_free(a);
        return -1;
    }
    *ret = a;
    return 0;
}

void gb_audit_free(struct gb_audit *a) {
    if (!a)
        return;
    gb_audit_file_free(a->file);
    gb_audit_refusals_free(a->refusals);
    free(a);
}

enum gb_audit_mode gb_audit_mode(struct gb_core *core) {
    enum gb_audit_mode mode = core->audit->mode;

    if (mode != GB_AUDIT_AUTO)
        return mode;
    return gb_tokens_required(core) ? GB_AUDIT_CHANGES : GB_AUDIT_OFF;
}

bool gb_audit_never(const struct gb_core *core) {
    return core->audit->mode == GB_AUDIT_OFF;
}

static void put(struct gb_core *core, const struct gb_audit_rec *rec) {
    gb_store_audit(core->store, rec);
    if (core->audit->file)
        gb_audit_file_put(core->audit->file, rec);
}

static void begin(struct gb_core *core) {
    const struct gb_audit_rec started = {.at_us = core->started_at_us, .event = GB_AUDIT_DAEMON_STARTED};

    if (!atomic_exchange(&core->audit->begun, true))
        put(core, &started);
}

void gb_audit_note(struct gb_core *core, const struct gb_audit_rec *rec) {
    if (!atomic_load_explicit(&core->audit->begun, memory_order_relaxed))
        begin(core);
    put(core, rec);
}

/* What has become a record. No lock is held across the store. */
static void put_all(struct gb_core *core, struct gb_audit_queue *recs) {
    struct gb_audit_rec rec;
    size_t at = 0;

    while (gb_audit_queue_next(recs, &at, &rec))
        gb_audit_note(core, &rec);
    gb_audit_queue_done(recs);
}

void gb_audit_note_refusal(struct gb_core *core, const struct gb_audit_rec *rec) {
    struct gb_audit_queue recs = {.at = NULL};

    gb_audit_refusals_put(core->audit->refusals, rec, gb_clock_ns(), &recs);
    put_all(core, &recs);
}

static void tick(struct gb_core *core, bool all) {
    struct gb_audit_queue recs = {.at = NULL};

    gb_audit_refusals_tick(core->audit->refusals, all, gb_clock_ns(), &recs);
    put_all(core, &recs);
}

void gb_audit_tick(struct gb_core *core) {
    tick(core, false);
}

void gb_audit_started(struct gb_core *core) {
    if (gb_audit_mode(core) != GB_AUDIT_OFF)
        begin(core);
}

void gb_audit_stopped(struct gb_core *core) {
    const struct gb_audit_rec stopped = {.at_us = gb_wall_us(), .event = GB_AUDIT_DAEMON_STOPPED};

    tick(core, true);
    if (atomic_load(&core->audit->begun))
        put(core, &stopped);
}

int gb_audit_read(struct gb_core *core, const struct gb_audit_query *query, gb_audit_visit_fn *visit, void *arg,
                  int64_t *ret_next, struct gb_error *err) {
    return gb_store_audit_read(core->store, query, visit, arg, ret_next, err);
}

void gb_audit_reopen(struct gb_core *core) {
    if (core->audit->file)
        gb_audit_file_reopen(core->audit->file);
}

void gb_audit_numbers(struct gb_core *core, struct gb_audit_numbers *ret) {
    *ret = (struct gb_audit_numbers){.file_failures = 0};
    gb_store_audit_stat(core->store, &ret->table);
    if (core->audit->file)
        ret->file_failures = gb_audit_file_failures(core->audit->file, &ret->file_error);
}

/* --- audit file --------------------------------------------------------------------------------------------------- */

/* Of records that wait for the disk: some 50,000. */
#define PENDING_MAX (8u << 20)
/* Text that is written at a time. */
#define TEXT 65536
/* While records come, so that a write has many of them. */
#define TICK_MS 25

struct gb_audit_file {
    char *path;
    char *old_path;     /* where it is renamed to */
    uint64_t bytes_max; /* 0: it is not */
    struct gb_worker worker;

    /* The worker's alone. */
    int fd; /* -1: it is not open */
    dev_t device;
    ino_t inode;
    uint64_t bytes;
    bool torn; /* a line was written in part */
    struct gb_audit_queue batch;
    uint64_t missing; /* records that no gap reports yet */

    pthread_mutex_t lock; /* for all below; a leaf */
    struct gb_audit_queue pending;
    uint64_t lost; /* found no room since the worker last looked */
    bool asleep;   /* the worker must be kicked */
    bool reopen;
    uint64_t failures;
    struct gb_error error;
};

/* --- the file ----------------------------------------------------------------------------------------------------- */

/* A pipe without a reader is refused, rather than waited for. */
#define OPEN_FLAGS (O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)

static int open_path(const char *path, struct gb_error *err) {
    int fd = open(path, OPEN_FLAGS | O_CREAT, 0600);

    if (fd < 0)
        gb_error_errno(err, errno == ENOSPC || errno == EDQUOT ? GB_ERR_STORAGE_FULL : GB_ERR_INTERNAL, "open", errno);
    return fd;
}

static int open_file(struct gb_audit_file *f, struct gb_error *err) {
    struct stat st;

    if (f->fd >= 0)
        return 0;
    f->fd = open_path(f->path, err);
    if (f->fd < 0)
        return -1;
    f->torn = false;
    if (fstat(f->fd, &st) == 0) {
        f->device = st.st_dev;
        f->inode = st.st_ino;
        f->bytes = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    }
    return 0;
}

static void close_file(struct gb_audit_file *f) {
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}

/* Whether the path still names the file that is open. */
static bool renamed(const struct gb_audit_file *f) {
    struct stat st;

    return stat(f->path, &st) < 0 || st.st_dev != f->device || st.st_ino != f->inode;
}

/* One that is too long goes out of the way; what cannot be renamed grows on. */
static void rotate(struct gb_audit_file *f, size_t written) {
    f->bytes += written;
    if (f->bytes_max == 0 || f->bytes < f->bytes_max || renamed(f) || rename(f->path, f->old_path) < 0)
        return;
    close_file(f);
}

static int write_all(int fd, const char *text, size_t n, size_t *ret_written, struct gb_error *err) {
    *ret_written = 0;
    while (*ret_written < n) {
        ssize_t r = write(fd, text + *ret_written, n - *ret_written);

        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return gb_error_errno(err, errno == ENOSPC || errno == EDQUOT ? GB_ERR_STORAGE_FULL : GB_ERR_INTERNAL,
                                  "write", errno);
        *ret_written += (size_t)r;
    }
    return 0;
}

/* --- lines -------------------------------------------------------------------------------------------------------- */

static void put_line(struct gb_json_writer *out, const struct gb_audit_rec *rec) {
    out->comma = false;
    gb_audit_render(out, rec);
    gb_json_put_text(out, "\n");
}

/* A line that was begun is ended first; a gap stands for records that are missing. */
static void begin_text(struct gb_audit_file *f, struct gb_json_writer *out) {
    const struct gb_audit_rec gap = {.at_us = gb_wall_us(), .event = GB_AUDIT_GAP, .count = f->missing};

    out->used = 0;
    out->failed = false;
    if (f->torn)
        gb_json_put_text(out, "\n");
    if (f->missing > 0)
        put_line(out, &gap);
}

static void failed(struct gb_audit_file *f, uint64_t n, const struct gb_error *err) {
    f->missing += n;
    pthread_mutex_lock(&f->lock);
    f->failures += n;
    f->error = *err;
    pthread_mutex_unlock(&f->lock);
}

/* n: records in the text. What of them was written when the disk had no more room counts as missing. */
static void flush(struct gb_audit_file *f, const struct gb_json_writer *out, uint64_t n) {
    struct gb_error err = GB_ERROR_INIT;
    size_t written = 0;

    if (out->failed)
        gb_error_set(&err, GB_ERR_INTERNAL, "out of memory");
    else if (open_file(f, &err) == 0)
        write_all(f->fd, out->s, out->used, &written, &err);
    if (err.code == GB_OK) {
        f->torn = false;
        f->missing = 0;
        rotate(f, written);
        return;
    }
    if (written > 0)
        f->torn = out->s[written - 1] != '\n';
    failed(f, n, &err);
    close_file(f);
}

static void write_batch(struct gb_audit_file *f) {
    struct gb_json_writer out = {0};
    struct gb_audit_rec rec;
    uint64_t n = 0;
    size_t at = 0;

    begin_text(f, &out);
    while (gb_audit_queue_next(&f->batch, &at, &rec)) {
        put_line(&out, &rec);
        n++;
        if (out.used >= TEXT) {
            flush(f, &out, n);
            begin_text(f, &out);
            n = 0;
        }
    }
    if (n > 0)
        flush(f, &out, n);
    gb_json_done(&out);
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

static bool take(struct gb_audit_file *f, bool *ret_reopen) {
    struct gb_audit_queue empty = f->batch;

    pthread_mutex_lock(&f->lock);
    f->batch = f->pending;
    f->pending = empty;
    f->missing += f->lost;
    f->lost = 0;
    f->asleep = f->batch.count == 0;
    *ret_reopen = f->reopen;
    f->reopen = false;
    pthread_mutex_unlock(&f->lock);
    return f->batch.count > 0;
}

static uint64_t work(void *arg) {
    struct gb_audit_file *f = arg;
    bool reopen = false;
    bool some = take(f, &reopen);

    if (f->fd >= 0 && (reopen || (some && renamed(f))))
        close_file(f);
    if (reopen)
        open_file(f, NULL); /* what hinders it is said of the next record */
    if (!some)
        return 0;
    write_batch(f);
    gb_audit_queue_clear(&f->batch);
    return TICK_MS;
}

int gb_audit_file_new(const char *path, uint64_t bytes_max, struct gb_audit_file **ret, struct gb_error *err) {
    struct gb_audit_file *f = calloc(1, sizeof(*f));
    struct gb_error why = GB_ERROR_INIT;

    if (!f)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    f->fd = -1;
    f->asleep = true;
    gb_mutex_init(&f->lock);
    gb_worker_init(&f->worker);
    f->bytes_max = bytes_max;
    f->path = strdup(path);
    if (!f->path || asprintf(&f->old_path, "%s.1", path) < 0) {
        f->old_path = NULL;
        gb_error_set(&why, GB_ERR_INTERNAL, "out of memory");
    }
    if (f->old_path && open_file(f, &why) < 0 && why.code == GB_ERR_STORAGE_FULL)
        why = GB_ERROR_INIT;
    if (why.code == GB_OK && gb_worker_start(&f->worker, "gb-audit", 0, work, f, &why) == 0) {
        *ret = f;
        return 0;
    }
    gb_audit_file_free(f);
    return gb_error_set(err, why.code, "the audit's file %.128s cannot be written: %s", path, why.detail);
}

void gb_audit_file_free(struct gb_audit_file *f) {
    if (!f)
        return;
    gb_worker_stop(&f->worker);
    while (work(f) > 0)
        ;
    gb_worker_done(&f->worker);
    close_file(f);
    gb_audit_queue_done(&f->batch);
    gb_audit_queue_done(&f->pending);
    pthread_mutex_destroy(&f->lock);
    free(f->path);
    free(f->old_path);
    free(f);
}

void gb_audit_file_put(struct gb_audit_file *f, const struct gb_audit_rec *rec) {
    bool kick;

    pthread_mutex_lock(&f->lock);
    if (!gb_audit_queue_put(&f->pending, rec, PENDING_MAX)) {
        f->lost++;
        f->failures++;
        f->error = GB_ERROR_INIT;
        gb_error_set(&f->error, GB_ERR_SATURATED, "records come faster than the disk takes them");
    }
    kick = f->asleep;
    f->asleep = false;
    pthread_mutex_unlock(&f->lock);
    if (kick)
        gb_worker_kick(&f->worker);
}

void gb_audit_file_reopen(struct gb_audit_file *f) {
    pthread_mutex_lock(&f->lock);
    f->reopen = true;
    pthread_mutex_unlock(&f->lock);
    gb_worker_kick(&f->worker);
}

uint64_t gb_audit_file_failures(struct gb_audit_file *f, struct gb_error *ret_error) {
    uint64_t failures;

    pthread_mutex_lock(&f->lock);
    failures = f->failures;
    *ret_error = f->error;
    pthread_mutex_unlock(&f->lock);
    return failures;
}

/* A file that root makes for a daemon of another user would not take that daemon's records. */
static int open_beside(const char *path, const char *dir, struct gb_error *err) {
    int fd = open(path, OPEN_FLAGS);
    struct stat st;

    if (fd >= 0 || errno != ENOENT)
        return fd >= 0 ? fd : open_path(path, err);
    fd = open(path, OPEN_FLAGS | O_CREAT | O_EXCL, 0600);
    if (fd < 0) /* the daemon was faster, or it is a link to nothing */
        return open_path(path, err);
    if (geteuid() == 0 && stat(dir, &st) == 0 && fchown(fd, st.st_uid, st.st_gid) < 0) {
        gb_error_errno(err, GB_ERR_INTERNAL, "fchown", errno);
        unlink(path);
        close(fd);
        return -1;
    }
    return fd;
}

int gb_audit_append(const char *path, const char *dir, const struct gb_audit_rec *rec, struct gb_error *err) {
    struct gb_json_writer out = {0};
    size_t written;
    int fd = open_beside(path, dir, err);
    int r = -1;

    if (fd < 0)
        return -1;
    put_line(&out, rec);
    if (out.failed)
        gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    else
        r = write_all(fd, out.s, out.used, &written, err);
    gb_json_done(&out);
    close(fd);
    return r;
}

/* --- audit refusals ----------------------------------------------------------------------------------------------- */

/* A repetition is reported a second later; while there are more of them, in steps that double up to this. */
#define STEP_NS GB_NS_PER_S
#define STEP_MAX_NS (64 * GB_NS_PER_S)
/* Between two records of those without a record of their own, at least. */
#define OTHERS_NS (60 * GB_NS_PER_S)
/* Of rows without a bound of their age. */
#define YEAR_US (365 * 86400 * 1000000LL)

/* A client, a route and a code. */
struct entry {
    bool used;
    uint32_t hash;    /* of what identifies it, or of a part of that */
    uint64_t last_ns; /* of the last refusal */
    uint64_t step_ns;
    uint64_t due_ns;  /* when repetitions are reported */
    uint64_t repeats; /* that no record reports yet; rec is the last of them */
    struct gb_audit_rec rec;
    char text[GB_AUDIT_TEXTS - GB_AUDIT_STATICS][GB_AUDIT_TEXT_MAX + 1];
};

struct gb_audit_refusals {
    double per_ns; /* records that the share permits */
    double burst;
    uint64_t others_ns;

    pthread_mutex_t lock; /* for all below; a leaf */
    double left;          /* of the share, at filled_ns */
    uint64_t filled_ns;
    uint64_t others;        /* refusals for which nothing of it was left */
    uint64_t others_due_ns; /* when those are reported */
    struct entry entries[GB_AUDIT_REFUSALS_MAX];
};

int gb_audit_refusals_new(uint64_t rows, int64_t age_us, struct gb_audit_refusals **ret, struct gb_error *err) {
    double age_ns = (double)(age_us > 0 ? age_us : YEAR_US) * 1000;
    double tenth = (double)rows / 10;
    struct gb_audit_refusals *r = calloc(1, sizeof(*r));

    if (!r)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    /* Half of the rows: a tenth at once, three in the time, and one for the others. */
    r->burst = tenth < GB_AUDIT_REFUSALS_BURST ? tenth : GB_AUDIT_REFUSALS_BURST;
    if (r->burst < 1)
        r->burst = 1;
    r->per_ns = 3 * tenth / age_ns;
    r->others_ns = age_ns > (double)OTHERS_NS * tenth ? (uint64_t)(age_ns / tenth) : OTHERS_NS;
    r->left = r->burst;
    gb_mutex_init(&r->lock);
    *ret = r;
    return 0;
}

void gb_audit_refusals_free(struct gb_audit_refusals *r) {
    if (!r)
        return;
    pthread_mutex_destroy(&r->lock);
    free(r);
}

/* --- the share ---------------------------------------------------------------------------------------------------- */

static bool take_share(struct gb_audit_refusals *r, uint64_t now_ns) {
    if (now_ns > r->filled_ns) {
        r->left += (double)(now_ns - r->filled_ns) * r->per_ns;
        r->filled_ns = now_ns;
    }
    if (r->left > r->burst)
        r->left = r->burst;
    if (r->left < 1)
        return false;
    r->left -= 1;
    return true;
}

/* A record that stands for n refusals; without a share it is counted among the others. */
static void report(struct gb_audit_refusals *r, const struct gb_audit_rec *rec, uint64_t n, uint64_t now_ns,
                   struct gb_audit_queue *out) {
    struct gb_audit_rec reported = *rec;

    reported.count = n > 1 ? n : 0;
    if (take_share(r, now_ns) && gb_audit_queue_put(out, &reported, SIZE_MAX))
        return;
    if (r->others == 0)
        r->others_due_ns = now_ns + r->others_ns;
    r->others += n;
}

static void report_others(struct gb_audit_refusals *r, struct gb_audit_queue *out) {
    const struct gb_audit_rec rec = {.at_us = gb_wall_us(), .event = GB_AUDIT_REFUSALS, .count = r->others};

    if (gb_audit_queue_put(out, &rec, SIZE_MAX))
        r->others = 0;
}

/* --- entries ------------------------------------------------------------------------------------------------------ */

static bool same_text(const char *a, const char *b) {
    return a == b || (a && b && strncmp(a, b, GB_AUDIT_TEXT_MAX) == 0);
}

static bool same(const struct gb_audit_rec *a, const struct gb_audit_rec *b) {
    static const enum gb_audit_text texts[] = {GB_AUDIT_ADDRESS, GB_AUDIT_ROUTE, GB_AUDIT_METHOD,
                                               GB_AUDIT_ERROR,   GB_AUDIT_TOKEN, GB_AUDIT_CERTIFICATE};
    size_t i;

    if (a->token_id != b->token_id || a->status != b->status)
        return false;

    for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (!same_text(a->text[texts[i]], b->text[texts[i]]))
            return false;
    }
    return true;
}

/* With --audit all, each read is looked for among all entries. */
static uint32_t hash_of(const struct gb_audit_rec *rec) {
    const char *address = rec->text[GB_AUDIT_ADDRESS];
    const char *route = rec->text[GB_AUDIT_ROUTE];

    return (gb_map_hash(address ? address : "") * 31 + gb_map_hash(route ? route : "")) * 31 + (uint32_t)rec->status;
}

/* The entry of this client, route and code, else one that is free, else the one that was refused longest ago. */
static struct entry *find(struct gb_audit_refusals *r, const struct gb_audit_rec *rec, uint32_t hash, bool *ret_same) {
    struct entry *best = &r->entries[0];
    struct entry *e;

    *ret_same = true;
    for (e = r->entries; e < r->entries + GB_AUDIT_REFUSALS_MAX; e++) {
        if (e->used && e->hash == hash && same(&e->rec, rec))
            return e;
        if (best->used && (!e->used || e->last_ns < best->last_ns))
            best = e;
    }
    *ret_same = false;
    return best;
}

static void keep(struct entry *e, const struct gb_audit_rec *rec, uint64_t now_ns) {
    int i;

    e->rec = *rec;
    e->last_ns = now_ns;
    for (i = 0; i < GB_AUDIT_TEXTS - GB_AUDIT_STATICS; i++) {
        const char *text = rec->text[GB_AUDIT_STATICS + i];
        size_t n = text ? strnlen(text, GB_AUDIT_TEXT_MAX) : 0;

        memcpy(e->text[i], text ? text : "", n);
        e->text[i][n] = '\0';
        e->rec.text[GB_AUDIT_STATICS + i] = text ? e->text[i] : NULL;
    }
}

static void tell_repeats(struct gb_audit_refusals *r, struct entry *e, uint64_t now_ns, struct gb_audit_queue *out) {
    if (e->repeats == 0)
        return;
    report(r, &e->rec, e->repeats, now_ns, out);
    e->repeats = 0;
    e->step_ns = e->step_ns * 2 < STEP_MAX_NS ? e->step_ns * 2 : STEP_MAX_NS;
}

void gb_audit_refusals_put(struct gb_audit_refusals *r, const struct gb_audit_rec *rec, uint64_t now_ns,
                           struct gb_audit_queue *out) {
    uint32_t hash = hash_of(rec);
    struct entry *e;
    bool known;

    pthread_mutex_lock(&r->lock);
    e = find(r, rec, hash, &known);
    if (known) {
        if (e->repeats++ == 0)
            e->due_ns = now_ns + e->step_ns;
    } else {
        tell_repeats(r, e, now_ns, out);
        e->used = true;
        e->hash = hash;
        e->step_ns = STEP_NS;
        report(r, rec, 1, now_ns, out);
    }
    keep(e, rec, now_ns);
    pthread_mutex_unlock(&r->lock);
}

void gb_audit_refusals_tick(struct gb_audit_refusals *r, bool all, uint64_t now_ns, struct gb_audit_queue *out) {
    struct entry *e;

    pthread_mutex_lock(&r->lock);
    for (e = r->entries; e < r->entries + GB_AUDIT_REFUSALS_MAX; e++) {
        if (!e->used)
            continue;
        if (all || now_ns >= e->due_ns)
            tell_repeats(r, e, now_ns, out);
        if (e->repeats == 0 && now_ns >= e->last_ns + STEP_MAX_NS)
            e->used = false;
    }
    if (r->others > 0 && (all || now_ns >= r->others_due_ns))
        report_others(r, out);
    pthread_mutex_unlock(&r->lock);
}
