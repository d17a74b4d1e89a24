/* Fetches that wait, run and have ended; their destination, a multipart upload; and their parts. A running fetch has a
 * thread, which is joined when the next fetch begins. fleet/pull, source.c, url.c and file.c call this, each on the
 * threads of its fetches. */
#include "source/fetch.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "core/runtime/call.h"
#include "curl/request.h"

#define WAIT_MAX_MS (24 * 3600 * 1000)
#define NO_THREAD "the system gives no thread for the pull; try again later"

struct gb_pulls {
    struct gb_core *core;
    char *ca_file;
    char *agent;
    unsigned running_max;
    uint64_t rate;
    uint64_t min_rate;

    pthread_mutex_t lock;
    pthread_cond_t idle;
    bool closing;
    struct gb_fetch *queue;
    struct gb_fetch *runs;
    struct gb_fetch *ended; /* their threads are to be joined */
    struct gb_pulls_stat stat;
    uint64_t free_at_ns; /* when the next byte may come */
    _Atomic uint64_t received;
};

/* --- one fetch ---------------------------------------------------------------------------------------------------- */

int gb_fetch_init(struct gb_fetch *fetch, struct gb_pulls *pulls, const struct gb_fetch_role *role,
                  const struct gb_buffer_check *check, struct gb_pull_call *call, struct gb_error *err) {
    fetch->role = role;
    fetch->pulls = pulls;
    fetch->call = call;
    fetch->check = *check;
    atomic_init(&fetch->refs, 1);
    fetch->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    fetch->halt = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fetch->stop >= 0 && fetch->halt >= 0)
        return 0;
    return gb_error_set(err, GB_ERR_SATURATED, "no descriptor is left for the pull; try again later");
}

static void close_both(struct gb_fetch *fetch) {
    if (fetch->stop >= 0)
        close(fetch->stop);
    if (fetch->halt >= 0)
        close(fetch->halt);
    fetch->stop = fetch->halt = -1;
}

void gb_fetch_done(struct gb_fetch *fetch) {
    if (fetch->check.free_arg)
        fetch->check.free_arg(fetch->check.arg);
    close_both(fetch);
}

void gb_fetch_unref(struct gb_fetch *fetch) {
    if (atomic_fetch_sub(&fetch->refs, 1) == 1)
        fetch->role->gone(fetch);
}

bool gb_fetch_commits(struct gb_fetch *fetch) {
    bool stopped;

    pthread_mutex_lock(&fetch->pulls->lock);
    stopped = fetch->why != GB_OK;
    if (!stopped)
        fetch->state = GB_FETCH_COMMITS;
    pthread_mutex_unlock(&fetch->pulls->lock);
    return !stopped;
}

bool gb_fetch_ends(const struct gb_fetch *fetch) {
    return atomic_load(&fetch->stopped) || atomic_load(&fetch->halted);
}

int gb_fetch_owe(struct gb_fetch *fetch, size_t n) {
    struct gb_pulls *pulls = fetch->pulls;
    uint64_t wait_ms;
    uint64_t free_at;
    uint64_t now;

    atomic_fetch_add(&pulls->received, n);
    if (pulls->rate == 0)
        return 0;
    now = gb_clock_ns();
    pthread_mutex_lock(&pulls->lock);
    if (pulls->free_at_ns < now)
        pulls->free_at_ns = now;
    free_at = pulls->free_at_ns += (uint64_t)((double)n * (double)GB_NS_PER_S / (double)pulls->rate);
    pthread_mutex_unlock(&pulls->lock);
    wait_ms = (free_at - now) / GB_NS_PER_MS;
    return wait_ms < WAIT_MAX_MS ? (int)wait_ms : WAIT_MAX_MS;
}

int gb_fetch_poll(const struct gb_fetch *fetch, int fd, short events, int ms) {
    struct pollfd fds[3] = {
        {.fd = fetch->stop, .events = POLLIN}, {.fd = fetch->halt, .events = POLLIN}, {.fd = fd, .events = events}};
    int n;

    do
        n = poll(fds, 3, ms);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return 0;
    if (fds[0].revents || fds[1].revents)
        return -1;
    return n > 0;
}

bool gb_fetch_again(const struct gb_fetch *fetch, struct gb_pull_patience *patience, unsigned retry_after_s) {
    static const int delays_ms[] = {200, 500, 1000, 2000, 4000};
    size_t last = sizeof(delays_ms) / sizeof(delays_ms[0]) - 1;
    int ms = delays_ms[patience->failures < last ? patience->failures : last];

    if (patience->failures++ >= patience->most + patience->more)
        return false;
    if (retry_after_s > 0 && ms < (int)(retry_after_s < 10 ? retry_after_s : 10) * 1000)
        ms = (int)(retry_after_s < 10 ? retry_after_s : 10) * 1000;
    return gb_fetch_poll(fetch, -1, 0, ms) == 0;
}

/* --- parts -------------------------------------------------------------------------------------------------------- */

#define PART_LEAST_BYTES (8u << 20) /* for each part */
#define PART_ALIGN (1u << 20)

unsigned gb_fetch_cut(uint64_t bytes, unsigned wanted, uint64_t ret_at[GB_PULL_CONNECTIONS_MAX],
                      uint64_t ret_bytes[GB_PULL_CONNECTIONS_MAX]) {
    uint64_t most = bytes / PART_LEAST_BYTES + (bytes % PART_LEAST_BYTES > 0);
    unsigned count = wanted > 0 ? wanted : GB_PULL_CONNECTIONS;
    uint64_t each;
    uint64_t at;
    unsigned n = 0;

    count = count < most ? count : (unsigned)most;
    if (count == 0)
        return 0;
    each = bytes / count + (bytes % count > 0);
    each = (each + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
    for (at = 0; at < bytes; at += each) {
        ret_at[n] = at;
        ret_bytes[n++] = bytes - at < each ? bytes - at : each;
    }
    return n;
}

void gb_fetch_part_wake(void *arg) {
    const struct gb_fetch_part *part = arg;

    (void)eventfd_write(part->wake, 1); /* a counter that is full is readable as well */
}

bool gb_fetch_part_wait(struct gb_fetch_part *part) {
    eventfd_t n;

    if (gb_fetch_poll(part->fetch, part->wake, POLLIN, -1) < 0)
        return false;
    (void)eventfd_read(part->wake, &n);
    return true;
}

enum gb_pull_outcome gb_fetch_part_room(struct gb_fetch_part *part, void **ret, size_t *ret_n) {
    int r;

    for (;;) {
        if (gb_fetch_ends(part->fetch))
            return GB_PULL_STOPPED;
        r = gb_upload_room(part->upload, ret, ret_n, &part->error);
        if (r != 0)
            return r < 0 ? GB_PULL_FAILED : GB_PULL_OK;
        if (!gb_fetch_part_wait(part))
            return GB_PULL_STOPPED;
    }
}

enum gb_pull_outcome gb_fetch_part_fill(struct gb_fetch_part *part, size_t n, bool received) {
    int wait_ms;

    part->got += n;
    if (gb_upload_fill(part->upload, n, &part->error) < 0)
        return GB_PULL_FAILED;
    if (!received)
        return GB_PULL_OK;
    part->received += n;
    atomic_fetch_add(&part->fetch->call->moved_bytes, n);
    wait_ms = gb_fetch_owe(part->fetch, n);
    if (wait_ms == 0)
        return GB_PULL_OK;
    gb_upload_pause(part->upload, true); /* others may need the slot meanwhile */
    return gb_fetch_poll(part->fetch, -1, 0, wait_ms) == 0 ? GB_PULL_OK : GB_PULL_STOPPED;
}

static enum gb_pull_outcome finish(struct gb_fetch_part *part) {
    uint32_t crc;
    int r;

    if (gb_upload_end(part->upload, &part->error) < 0)
        return GB_PULL_FAILED;
    while ((r = gb_part_result(part->upload, &crc, NULL, &part->error)) == 0)
        if (!gb_fetch_part_wait(part))
            return GB_PULL_STOPPED;
    return r < 0 ? GB_PULL_FAILED : GB_PULL_OK;
}

/* Sets outcome and error. Ends the attempt unless the outcome is OK. [a thread of its own] */
static void part_run(struct gb_fetch_part *part) {
    struct gb_fetch *fetch = part->fetch;
    struct gb_waker waker = {gb_fetch_part_wake, part};

    part->outcome = GB_PULL_FAILED;
    part->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (part->wake < 0) {
        gb_error_set(&part->error, GB_ERR_SATURATED, "no descriptor is left for the pull; try again later");
    } else if (gb_multipart_part(fetch->pulls->core, &fetch->session, fetch->multipart, part->at, part->bytes, false,
                                 waker, &part->upload, &part->error) == 0) {
        part->outcome = part->bring(part);
        if (part->outcome == GB_PULL_OK)
            part->outcome = finish(part);
        gb_upload_free(part->upload);
    }
    if (part->wake >= 0)
        close(part->wake);
    if (part->outcome != GB_PULL_OK) {
        atomic_store(&fetch->halted, true);
        (void)eventfd_write(fetch->halt, 1);
    }
}

static void *part_main(void *arg) {
    part_run(arg);
    return NULL;
}

/* The first part runs on this thread. So does a part for which no thread can be started. */
static void run_parts(struct gb_fetch_part *const *parts, unsigned count) {
    unsigned i;

    for (i = 1; i < count; i++)
        parts[i]->started = gb_thread_start(&parts[i]->thread, "gb-pull-part", part_main, parts[i], NULL) == 0;
    for (i = 0; i < count; i++) {
        if (!parts[i]->started)
            part_run(parts[i]);
    }
    for (i = 0; i < count; i++) {
        if (parts[i]->started)
            pthread_join(parts[i]->thread, NULL);
    }
}

static enum gb_pull_outcome outcome_of(struct gb_fetch *fetch, struct gb_fetch_part *const *parts, unsigned count,
                                       struct gb_error *err) {
    enum gb_pull_outcome ret = GB_PULL_OK;
    unsigned i;

    for (i = 0; i < count; i++) {
        const struct gb_fetch_part *part = parts[i];

        fetch->numbers.received_bytes += part->received;
        fetch->numbers.resumed += part->resumed;
        if (part->outcome == GB_PULL_OK || (part->outcome == GB_PULL_STOPPED && ret != GB_PULL_OK))
            continue;
        if (ret == GB_PULL_OK || ret == GB_PULL_STOPPED) {
            ret = part->outcome;
            *err = part->error;
        }
    }
    return ret;
}

enum gb_pull_outcome gb_fetch_bring(struct gb_fetch *fetch, struct gb_fetch_part *const *parts, unsigned count,
                                    struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    enum gb_pull_outcome outcome;
    eventfd_t n;

    fetch->numbers.connections = count;
    if (count == 0)
        return GB_PULL_OK;
    run_parts(parts, count);
    outcome = outcome_of(fetch, parts, count, &why);
    if (atomic_exchange(&fetch->halted, false))
        (void)eventfd_read(fetch->halt, &n);
    if (outcome != GB_PULL_OK)
        gb_error_move(err, &why);
    return outcome;
}

/* --- calls of the core -------------------------------------------------------------------------------------------- */

static void call_done(void *arg) {
    (void)eventfd_write(*(int *)arg, 1);
}

/* *ret_fd is readable when the call has ended. NULL with err. */
static struct gb_multipart_call *call_new(int *ret_fd, struct gb_error *err) {
    struct gb_multipart_call *call = NULL;

    *ret_fd = eventfd(0, EFD_CLOEXEC);
    if (*ret_fd >= 0)
        call = gb_call_new(sizeof(*call), call_done, ret_fd);
    if (call)
        return call;
    if (*ret_fd >= 0)
        close(*ret_fd);
    gb_error_set(err, GB_ERR_SATURATED, "no memory for the pull; try again later");
    return NULL;
}

/* A fetch that is to end cancels a wait for memory. Other calls of the core end by themselves. */
static int call_wait(struct gb_fetch *fetch, struct gb_multipart_call *call, int fd, struct gb_error *err) {
    eventfd_t n;

    if (gb_fetch_poll(fetch, fd, POLLIN, -1) < 0)
        (void)gb_call_cancel(&call->base, true);
    (void)eventfd_read(fd, &n);
    close(fd);
    return call->base.error.code == GB_OK ? 0 : gb_error_move(err, &call->base.error);
}

/* --- the destination ---------------------------------------------------------------------------------------------- */

static int check(void *arg, const struct gb_buffer_rec *rec, struct gb_error *err) {
    const struct gb_buffer_check *given = &((struct gb_fetch *)arg)->check;

    return given->check ? given->check(given->arg, rec, err) : 0;
}

static void check_free(void *arg) {
    gb_fetch_unref(arg);
}

struct gb_buffer_check gb_fetch_check(struct gb_fetch *fetch) {
    atomic_fetch_add(&fetch->refs, 1);
    return (struct gb_buffer_check){check, fetch, check_free};
}

int gb_fetch_begin(struct gb_fetch *fetch, struct gb_upload_params *params, struct gb_error *err) {
    struct gb_multipart_call *call;
    int fd;
    int r;

    call = call_new(&fd, err);
    if (!call)
        return -1;
    params->check = gb_fetch_check(fetch);
    fetch->session = params->buffer.session;
    gb_multipart_begin(fetch->pulls->core, params, call);
    r = call_wait(fetch, call, fd, err);
    if (r == 0)
        strcpy(fetch->multipart, call->multipart.id);
    gb_call_unref(&call->base);
    return r;
}

void gb_fetch_give_up(struct gb_fetch *fetch) {
    struct gb_multipart_call *call;
    int fd;

    if (fetch->multipart[0] == '\0')
        return;
    call = call_new(&fd, NULL);
    if (!call)
        return; /* it ends by its time limit */
    gb_multipart_delete(fetch->pulls->core, &fetch->session, fetch->multipart, call);
    call_wait(fetch, call, fd, NULL);
    gb_call_unref(&call->base);
    fetch->multipart[0] = '\0';
}

void gb_fetch_take_result(struct gb_fetch *fetch, struct gb_buffer_rec *rec, bool created,
                          const struct gb_transfer_times *times) {
    struct gb_buffer_call *written = &fetch->call->written;

    written->base.free_result = gb_buffer_call_done;
    written->buffer = *rec;
    written->created = created;
    written->times = *times;
    memset(rec, 0, sizeof(*rec)); /* its references have been moved */
}

int gb_fetch_mismatch(const char *from, const char *said, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_DIGEST_MISMATCH, "what came from %s is thrown away: %.*s", from,
                        (int)strcspn(said, ";"), said);
}

int gb_fetch_complete(struct gb_fetch *fetch, const struct gb_multipart_expected *expected, const char *from,
                      struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    struct gb_multipart_call *call;
    int fd;
    int r;

    call = call_new(&fd, err);
    if (!call)
        return -1;
    call->base.mark = fetch->call->written.base.mark;
    gb_multipart_complete(fetch->pulls->core, &fetch->session, fetch->multipart, NULL, expected, call);
    r = call_wait(fetch, call, fd, &why);
    if (r == 0 && !call->multipart.completed)
        r = gb_error_set(err, GB_ERR_INTERNAL, "the pull has not brought all bytes");
    else if (r == 0)
        gb_fetch_take_result(fetch, &call->buffer, call->created, &call->times);
    else if (why.code == GB_ERR_DIGEST_MISMATCH)
        gb_fetch_mismatch(from, why.detail, err); /* worded for a pull, not for clients that send parts */
    else
        gb_error_move(err, &why);
    gb_call_unref(&call->base);
    return r;
}

/* --- lists -------------------------------------------------------------------------------------------------------- */

static void append(struct gb_fetch **list, struct gb_fetch *fetch) {
    while (*list)
        list = &(*list)->next;
    fetch->next = NULL;
    *list = fetch;
}

static bool withdraw(struct gb_fetch **list, struct gb_fetch *fetch) {
    for (; *list; list = &(*list)->next)
        if (*list == fetch) {
            *list = fetch->next;
            return true;
        }
    return false;
}

static void stop_locked(struct gb_fetch *fetch, enum gb_code why) {
    if (fetch->why == GB_OK)
        fetch->why = why;
    atomic_store(&fetch->stopped, true);
    (void)eventfd_write(fetch->stop, 1);
}

/* --- the threads -------------------------------------------------------------------------------------------------- */

static void start_more_locked(struct gb_pulls *pulls);

static int stopped_error(enum gb_code why, struct gb_error *err) {
    if (why == GB_ERR_DRAINING)
        return gb_error_set(err, GB_ERR_DRAINING, "the daemon is stopping; the pull was given up, nothing was changed");
    return gb_cancelled(err);
}

/* Finishes the call without the lock, because done may start another fetch. */
static void fetch_finish(struct gb_fetch *fetch, int r, struct gb_error *err) {
    struct gb_pulls *pulls = fetch->pulls;

    (void)gb_call_withdraw(&fetch->call->written.base, NULL);
    pthread_mutex_lock(&pulls->lock);
    if (r < 0 && fetch->why != GB_OK) {
        *err = GB_ERROR_INIT;
        stopped_error(fetch->why, err);
    }
    if (r < 0 && err->code == GB_OK)
        gb_error_set(err, GB_ERR_INTERNAL, "the pull has ended without a reason");
    pulls->stat.done += r == 0;
    pulls->stat.failed += r < 0;
    pulls->stat.resumed += fetch->numbers.resumed;
    pulls->stat.begun_again += fetch->numbers.begun_again;
    pthread_mutex_unlock(&pulls->lock);
    fetch->call->numbers = fetch->numbers;
    gb_call_finish(&fetch->call->written.base, r < 0 ? err : NULL);
}

static struct gb_fetch *take_queue_locked(struct gb_pulls *pulls) {
    struct gb_fetch *queue = pulls->queue;

    pulls->queue = NULL;
    pulls->stat.waiting = 0;
    return queue;
}

/* Ends queued fetches. */
static void finish_all(struct gb_fetch *queue, const struct gb_error *why) {
    struct gb_error err;
    struct gb_fetch *fetch;

    while ((fetch = queue)) {
        queue = fetch->next;
        err = *why;
        fetch_finish(fetch, -1, &err);
        gb_fetch_unref(fetch);
    }
}

static void *fetch_main(void *arg) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_error lack = GB_ERROR_INIT;
    /* No thread can be started for them, and no fetch is running whose end they could wait for. */
    struct gb_fetch *stranded = NULL;
    struct gb_fetch *fetch = arg;
    struct gb_pulls *pulls = fetch->pulls;
    int r = fetch->role->run(fetch, &err);

    fetch_finish(fetch, r, &err);
    pthread_mutex_lock(&pulls->lock);
    fetch->state = GB_FETCH_ENDED; /* nothing stops it any more */
    close_both(fetch);
    withdraw(&pulls->runs, fetch);
    append(&pulls->ended, fetch);
    pulls->stat.running--;
    start_more_locked(pulls);
    if (pulls->stat.running == 0 && !pulls->closing)
        stranded = take_queue_locked(pulls);
    pthread_cond_broadcast(&pulls->idle);
    pthread_mutex_unlock(&pulls->lock);
    gb_error_set(&lack, GB_ERR_SATURATED, NO_THREAD);
    finish_all(stranded, &lack);
    return NULL;
}

/* If no thread can be started, queued fetches wait until a running one ends; without a running one they fail. */
static void start_more_locked(struct gb_pulls *pulls) {
    struct gb_fetch *fetch;

    while (!pulls->closing && pulls->queue && pulls->stat.running < pulls->running_max) {
        fetch = pulls->queue;
        if (gb_thread_start(&fetch->thread, "gb-pull", fetch_main, fetch, NULL) < 0)
            return;
        pulls->queue = fetch->next;
        fetch->state = GB_FETCH_RUNS;
        append(&pulls->runs, fetch);
        pulls->stat.waiting--;
        pulls->stat.running++;
    }
}

static void join_ended(struct gb_pulls *pulls) {
    struct gb_fetch *ended;
    struct gb_fetch *next;

    pthread_mutex_lock(&pulls->lock);
    ended = pulls->ended;
    pulls->ended = NULL;
    pthread_mutex_unlock(&pulls->lock);
    for (; ended; ended = next) {
        next = ended->next;
        pthread_join(ended->thread, NULL);
        gb_fetch_unref(ended);
    }
}

/* --- cancelling --------------------------------------------------------------------------------------------------- */

static bool hold(void *arg) {
    atomic_fetch_add(&((struct gb_fetch *)arg)->refs, 1);
    return true;
}

/* Operations show a running fetch as running, although it can be cancelled. */
static bool cancel(void *arg, bool act) {
    struct gb_fetch *fetch = arg;
    struct gb_pulls *pulls = fetch->pulls;
    struct gb_error err = GB_ERROR_INIT;
    bool waited = false;
    bool r;

    pthread_mutex_lock(&pulls->lock);
    r = fetch->state == GB_FETCH_WAITS || (act && fetch->state == GB_FETCH_RUNS);
    if (r && act) {
        stop_locked(fetch, GB_ERR_CANCELLED);
        waited = withdraw(&pulls->queue, fetch);
        pulls->stat.waiting -= waited;
    }
    pthread_mutex_unlock(&pulls->lock);
    if (waited) {
        fetch_finish(fetch, -1, &err);
        gb_fetch_unref(fetch);
    }
    gb_fetch_unref(fetch);
    return r;
}

/* --- beginning and end -------------------------------------------------------------------------------------------- */

static int admit_locked(struct gb_pulls *pulls, struct gb_fetch *fetch, struct gb_error *err) {
    if (pulls->closing || fetch->why != GB_OK)
        return stopped_error(pulls->closing ? GB_ERR_DRAINING : fetch->why, err);
    if (pulls->stat.waiting >= GB_PULLS_WAITING)
        return gb_error_set(err, GB_ERR_SATURATED, "%d pulls wait already (--pulls %u run at a time); try again later",
                            GB_PULLS_WAITING, pulls->running_max);
    append(&pulls->queue, fetch);
    pulls->stat.waiting++;
    start_more_locked(pulls);
    if (pulls->stat.running > 0)
        return 0;
    withdraw(&pulls->queue, fetch);
    pulls->stat.waiting--;
    return gb_error_set(err, GB_ERR_SATURATED, NO_THREAD);
}

void gb_fetch_submit(struct gb_fetch *fetch) {
    struct gb_call *call = &fetch->call->written.base;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_pulls *pulls = fetch->pulls;
    int r;

    join_ended(pulls);
    gb_call_offer(call, hold, cancel, fetch);
    pthread_mutex_lock(&pulls->lock);
    r = admit_locked(pulls, fetch, &err);
    pthread_mutex_unlock(&pulls->lock);
    if (r == 0)
        return;
    (void)gb_call_withdraw(call, NULL);
    gb_fetch_unref(fetch);
    gb_call_finish(call, &err);
}

const char *gb_pulls_agent(const struct gb_pulls *pulls) {
    return pulls->agent;
}

const char *gb_pulls_ca(const struct gb_pulls *pulls) {
    return pulls->ca_file;
}

uint64_t gb_pulls_min_rate(const struct gb_pulls *pulls) {
    return pulls->min_rate;
}

struct gb_core *gb_pulls_core(const struct gb_pulls *pulls) {
    return pulls->core;
}

void gb_pulls_stat(struct gb_pulls *pulls, struct gb_pulls_stat *ret) {
    pthread_mutex_lock(&pulls->lock);
    *ret = pulls->stat;
    pthread_mutex_unlock(&pulls->lock);
    ret->bytes = atomic_load(&pulls->received);
}

static void pulls_free(struct gb_pulls *pulls) {
    if (!pulls)
        return;
    free(pulls->ca_file);
    free(pulls->agent);
    free(pulls);
}

int gb_pulls_open(const struct gb_pulls_config *config, struct gb_pulls **ret, struct gb_error *err) {
    struct gb_pulls *pulls = calloc(1, sizeof(*pulls));
    bool ok = pulls != NULL;

    if (ok && config->ca_file && config->ca_file[0] != '\0')
        ok = (pulls->ca_file = strdup(config->ca_file)) != NULL;
    if (ok && asprintf(&pulls->agent, "gpubufd/%s", config->version) < 0) {
        pulls->agent = NULL;
        ok = false;
    }
    if (!ok || gb_http_begin() < 0) {
        pulls_free(pulls);
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    }
    pulls->core = config->core;
    pulls->running_max = config->running_max > 0 ? config->running_max : GB_PULLS_RUNNING;
    pulls->rate = config->rate_bytes_s;
    pulls->min_rate = config->min_rate_bytes_s;
    pthread_mutex_init(&pulls->lock, NULL);
    gb_cond_init(&pulls->idle);
    *ret = pulls;
    return 0;
}

void gb_pulls_close(struct gb_pulls *pulls) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_fetch *queue;
    struct gb_fetch *fetch;

    if (!pulls)
        return;
    pthread_mutex_lock(&pulls->lock);
    pulls->closing = true;
    queue = take_queue_locked(pulls);
    for (fetch = queue; fetch; fetch = fetch->next)
        stop_locked(fetch, GB_ERR_DRAINING);
    for (fetch = pulls->runs; fetch; fetch = fetch->next)
        stop_locked(fetch, GB_ERR_DRAINING);
    pthread_mutex_unlock(&pulls->lock);
    finish_all(queue, &err);
    pthread_mutex_lock(&pulls->lock);
    while (pulls->stat.running > 0)
        pthread_cond_wait(&pulls->idle, &pulls->lock);
    pthread_mutex_unlock(&pulls->lock);
    join_ended(pulls);
    gb_http_end();
    pthread_cond_destroy(&pulls->idle);
    pthread_mutex_destroy(&pulls->lock);
    pulls_free(pulls);
}
