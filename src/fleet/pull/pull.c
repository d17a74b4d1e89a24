/* Pulls that wait, run and have ended, and the steps of a pull: the source's record is read, memory is taken, the parts
 * are received, the whole is committed. Nothing is visible before the commit. A running pull has a thread, which is
 * joined when the next pull begins. The API and fleet/arrival start pulls. */
#include "fleet/pull/pull.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "core/runtime/call.h"
#include "fleet/pull/source.h"

struct gb_pull_part {
    struct gb_pull *pull;
    struct gb_pull_conn *conn; /* its own, or the pull's */
    uint64_t at;
    uint64_t bytes;
    pthread_t thread;
    bool started;
    int wake; /* there may be room */
    struct gb_upload *upload;
    uint64_t got; /* bytes of the range that have come */
    uint64_t received;
    unsigned resumed;
    enum gb_pull_outcome outcome;
    struct gb_error error;
};

#define WAIT_MAX_MS (24 * 3600 * 1000)

/* Frees what params hand over. */
static void free_params(const struct gb_pull_params *params) {
    if (params->ticket.free_arg)
        params->ticket.free_arg(params->ticket.arg);
    if (params->failover.free_arg)
        params->failover.free_arg(params->failover.arg);
    if (params->check.free_arg)
        params->check.free_arg(params->check.arg);
}

static void pull_unref(struct gb_pull *pull) {
    size_t i;

    if (atomic_fetch_sub(&pull->refs, 1) != 1)
        return;
    for (i = 0; pull->permitted && i < pull->params.permitted_count; i++)
        free(pull->permitted[i]);
    free(pull->permitted);
    gb_pull_places_free(pull);
    free_params(&pull->params);
    if (pull->stop >= 0)
        close(pull->stop);
    if (pull->halt >= 0)
        close(pull->halt);
    free(pull->token);
    free(pull->if_match);
    free(pull);
}

/* From now on the pull cannot be cancelled. False: it is to end. */
static bool pull_commits(struct gb_pull *pull) {
    bool stopped;

    pthread_mutex_lock(&pull->pulls->lock);
    stopped = pull->why != GB_OK;
    if (!stopped)
        pull->state = GB_PULL_COMMITS;
    pthread_mutex_unlock(&pull->pulls->lock);
    return !stopped;
}

/* Counts n received bytes. Returns for how many milliseconds the rate demands to wait. */
static int pulls_owe(struct gb_pull *pull, size_t n) {
    struct gb_pulls *pulls = pull->pulls;
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

/* --- the steps of one --------------------------------------------------------------------------------------------- */

#define FAILURES_MAX 7              /* in a row */
#define PART_LEAST_BYTES (8u << 20) /* for each connection */
#define PART_ALIGN (1u << 20)
#define DESCRIBE_FAILURES_MAX 3

/* --- one range: its bytes go from the socket into a part of the multipart upload ---------------------------------- */

static void wake(void *arg) {
    const struct gb_pull_part *part = arg;

    (void)eventfd_write(part->wake, 1); /* a counter that is full is readable as well */
}

/* For the wake of the upload. False: the attempt is to end. */
static bool wait_for_wake(struct gb_pull_part *part) {
    eventfd_t n;

    if (gb_pull_poll(part->pull, part->wake, POLLIN, -1) < 0)
        return false;
    (void)eventfd_read(part->wake, &n);
    return true;
}

/* --- bytes -------------------------------------------------------------------------------------------------------- */

static enum gb_pull_outcome take(struct gb_pull_part *part, void *room, size_t n) {
    enum gb_pull_outcome outcome;
    size_t got;
    int wait_ms;

    outcome = gb_pull_conn_recv(part->conn, room, n, &got, &part->error);
    if (outcome != GB_PULL_OK)
        return outcome;
    if (got == 0) {
        gb_upload_pause(part->upload, false); /* which takes the room back */
        gb_pull_conn_mark(part->conn, part->bytes - part->got);
        return gb_pull_conn_wait(part->conn, POLLIN, GB_PULL_STALL_MS, &part->error);
    }
    part->got += got;
    part->received += got;
    if (gb_upload_fill(part->upload, got, &part->error) < 0)
        return GB_PULL_FAILED;
    wait_ms = pulls_owe(part->pull, got);
    if (wait_ms == 0)
        return GB_PULL_OK;
    gb_upload_pause(part->upload, true); /* others may need the slot meanwhile */
    return gb_pull_poll(part->pull, -1, 0, wait_ms) == 0 ? GB_PULL_OK : GB_PULL_STOPPED;
}

/* Receives the rest of the range. */
static enum gb_pull_outcome receive(struct gb_pull_part *part) {
    enum gb_pull_outcome outcome = GB_PULL_OK;
    void *room;
    size_t n;
    int r;

    while (outcome == GB_PULL_OK && part->got < part->bytes) {
        if (gb_pull_ends(part->pull))
            return GB_PULL_STOPPED;
        r = gb_upload_room(part->upload, &room, &n, &part->error);
        if (r < 0)
            return GB_PULL_FAILED;
        if (r == 0)
            outcome = wait_for_wake(part) ? GB_PULL_OK : GB_PULL_STOPPED;
        else
            outcome = take(part, room, n < part->bytes - part->got ? n : (size_t)(part->bytes - part->got));
    }
    return outcome;
}

/* --- one connection ----------------------------------------------------------------------------------------------- */

static bool is_range(const struct gb_pull_part *part, const struct gb_pull_head *head) {
    uint64_t left = part->bytes - part->got;

    if (head->coded || !head->has_length || head->length != left)
        return false;
    if (head->status == 200)
        return part->at + part->got == 0 && left == part->pull->source.bytes;
    return head->status == 206 && head->has_range && head->first == part->at + part->got &&
           head->last == part->at + part->bytes - 1 && head->total == part->pull->source.bytes;
}

static enum gb_pull_outcome attempt_range(struct gb_pull_part *part, const struct gb_pull_place *place,
                                          unsigned *ret_retry_after_s) {
    struct gb_pull_ask ask = {.place = place,
                              .method = "GET",
                              .data = true,
                              .ranged = true,
                              .first = part->at + part->got,
                              .last = part->at + part->bytes - 1,
                              .if_match = place->tag};
    enum gb_pull_outcome outcome;
    struct gb_pull_head head;

    *ret_retry_after_s = 0;
    outcome = gb_pull_request(part->conn, &ask, &head, &part->error);
    if (outcome != GB_PULL_OK)
        return outcome;
    *ret_retry_after_s = head.retry_after_s;
    if (head.status != 200 && head.status != 206)
        return gb_pull_refusal(part->conn, &ask, &head, &part->error);
    if (strcmp(head.tag, place->tag) != 0) {
        gb_error_set(&part->error, GB_ERR_SOURCE_CHANGED, "the source %s answers with other bytes than those asked for",
                     part->conn->origin);
        return GB_PULL_CHANGED;
    }
    if (!is_range(part, &head)) {
        gb_error_set(&part->error, GB_ERR_SOURCE_REFUSED,
                     "the source %s answers with another range than the one asked for, or with a content coding",
                     part->conn->origin);
        return GB_PULL_FAILED;
    }
    return receive(part);
}

static enum gb_pull_outcome bring_range(struct gb_pull_part *part) {
    struct gb_pull_patience patience = {.most = FAILURES_MAX};
    const struct gb_pull_place *place;
    unsigned retry_after_s;
    enum gb_pull_outcome outcome;
    uint64_t before;

    for (;;) {
        before = part->got;
        place = atomic_load(&part->pull->place);
        outcome = attempt_range(part, place, &retry_after_s);
        if (outcome != GB_PULL_BROKEN && outcome != GB_PULL_CHANGED)
            return outcome;
        gb_pull_conn_close(part->conn);
        gb_upload_pause(part->upload, true);
        if (part->got > before)
            patience.failures = 0;
        outcome = gb_pull_fail_over(part->conn, place, outcome, &patience, &part->error);
        if (outcome != GB_PULL_OK && outcome != GB_PULL_BROKEN)
            return outcome;
        if (outcome == GB_PULL_BROKEN && !gb_pull_again(part->pull, &patience, retry_after_s))
            return patience.failures > patience.most + patience.more ? GB_PULL_FAILED : GB_PULL_STOPPED;
        part->error = GB_ERROR_INIT;
        part->resumed++;
    }
}

static enum gb_pull_outcome finish(struct gb_pull_part *part) {
    uint32_t crc;
    int r;

    if (gb_upload_end(part->upload, &part->error) < 0)
        return GB_PULL_FAILED;
    while ((r = gb_part_result(part->upload, &crc, NULL, &part->error)) == 0)
        if (!wait_for_wake(part))
            return GB_PULL_STOPPED;
    return r < 0 ? GB_PULL_FAILED : GB_PULL_OK;
}

/* Receives the whole range. Sets outcome and error. Ends the attempt unless the outcome is OK. [a thread of its own] */
static void pull_part_run(struct gb_pull_part *part) {
    struct gb_pull *pull = part->pull;
    struct gb_waker waker = {wake, part};

    part->outcome = GB_PULL_FAILED;
    part->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (part->wake < 0) {
        gb_error_set(&part->error, GB_ERR_SATURATED, "no descriptor is left for the pull; try again later");
    } else if (gb_multipart_part(pull->pulls->core, &pull->params.to.session, pull->multipart, part->at, part->bytes,
                                 false, waker, &part->upload, &part->error) == 0) {
        part->outcome = bring_range(part);
        if (part->outcome == GB_PULL_OK)
            part->outcome = finish(part);
        gb_upload_free(part->upload);
    }
    gb_pull_conn_close(part->conn);
    if (part->wake >= 0)
        close(part->wake);
    if (part->outcome != GB_PULL_OK) {
        atomic_store(&pull->halted, true);
        (void)eventfd_write(pull->halt, 1);
    }
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

/* A pull that is to end cancels a wait for memory. Other calls of the core end by themselves. */
static int call_wait(struct gb_pull *pull, struct gb_multipart_call *call, int fd, struct gb_error *err) {
    eventfd_t n;

    if (gb_pull_poll(pull, fd, POLLIN, -1) < 0)
        (void)gb_call_cancel(&call->base, true);
    (void)eventfd_read(fd, &n);
    close(fd);
    return call->base.error.code == GB_OK ? 0 : gb_error_move(err, &call->base.error);
}

/* --- the multipart upload ----------------------------------------------------------------------------------------- */

/* The precondition of the destination, shared by all multipart uploads of this pull. */
static int check(void *arg, const struct gb_buffer_rec *rec, struct gb_error *err) {
    const struct gb_buffer_check *given = &((struct gb_pull *)arg)->params.check;

    return given->check ? given->check(given->arg, rec, err) : 0;
}

static void check_free(void *arg) {
    pull_unref(arg);
}

static int begin(struct gb_pull *pull, struct gb_error *err) {
    const struct gb_pull_source *source = &pull->source;
    struct gb_upload_params params = {.buffer = pull->params.to, .bytes = source->bytes};
    struct gb_multipart_call *call;
    int fd;
    int r;

    params.buffer.bytes = source->bytes;
    params.buffer.dtype = source->dtype;
    params.buffer.shape = source->shape;
    params.buffer.has_shape = true;
    params.buffer.labels = source->labels;
    params.buffer.has_labels = true;
    params.wait_ms = pull->params.wait_ms;
    params.check = (struct gb_buffer_check){check, pull, check_free};
    atomic_fetch_add(&pull->refs, 1);
    call = call_new(&fd, err);
    if (!call) {
        pull_unref(pull);
        return -1;
    }
    gb_multipart_begin(pull->pulls->core, &params, call);
    r = call_wait(pull, call, fd, err);
    if (r == 0)
        strcpy(pull->multipart, call->multipart.id);
    gb_call_unref(&call->base);
    return r;
}

static void give_up(struct gb_pull *pull) {
    struct gb_multipart_call *call;
    int fd;

    if (pull->multipart[0] == '\0')
        return;
    call = call_new(&fd, NULL);
    if (!call)
        return; /* it ends by its time limit */
    gb_multipart_delete(pull->pulls->core, &pull->params.to.session, pull->multipart, call);
    call_wait(pull, call, fd, NULL);
    gb_call_unref(&call->base);
    pull->multipart[0] = '\0';
}

static void take_result(struct gb_pull *pull, struct gb_multipart_call *call) {
    struct gb_buffer_call *written = &pull->call->written;

    written->base.free_result = gb_buffer_call_done;
    written->buffer = call->buffer;
    written->created = call->created;
    written->times = call->times;
    memset(&call->buffer, 0, sizeof(call->buffer)); /* its references have been moved */
}

/* The error is worded for a pull, not for clients that send parts. */
static int mismatch(const struct gb_pull *pull, const struct gb_error *why, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_DIGEST_MISMATCH, "what came from the source %s is thrown away: %.*s",
                        pull->params.from.origin, (int)strcspn(why->detail, ";"), why->detail);
}

static int check_crc32c(const struct gb_pull *pull, struct gb_error *err) {
    const struct gb_pull_source *source = &pull->source;
    uint32_t crc = 0;

    if (!source->has_crc32c || source->bytes == 0 ||
        !gb_multipart_arrived(pull->pulls->core, &pull->params.to.session, pull->multipart, 0, source->bytes, &crc) ||
        crc == source->crc32c)
        return 0;
    return gb_error_set(err, GB_ERR_SOURCE_REFUSED,
                        "the bytes that came from the source %s have the CRC32C %08x, and it says %08x: they are "
                        "thrown away",
                        pull->params.from.origin, crc, source->crc32c);
}

static int complete(struct gb_pull *pull, struct gb_error *err) {
    struct gb_multipart_expected expected = {.digests = pull->params.digests};
    struct gb_error why = GB_ERROR_INIT;
    struct gb_multipart_call *call;
    int fd;
    int r;

    call = check_crc32c(pull, err) < 0 ? NULL : call_new(&fd, err);
    if (!call)
        return -1;
    call->base.mark = pull->call->written.base.mark;
    gb_multipart_complete(pull->pulls->core, &pull->params.to.session, pull->multipart, NULL, &expected, call);
    r = call_wait(pull, call, fd, &why);
    if (r == 0 && !call->multipart.completed)
        r = gb_error_set(err, GB_ERR_INTERNAL, "the pull has not brought all bytes");
    else if (r == 0)
        take_result(pull, call);
    else if (why.code == GB_ERR_DIGEST_MISMATCH)
        mismatch(pull, &why, err);
    else
        gb_error_move(err, &why);
    gb_call_unref(&call->base);
    return r;
}

/* --- the parts ---------------------------------------------------------------------------------------------------- */

static void *part_main(void *arg) {
    pull_part_run(arg);
    return NULL;
}

static unsigned plan(struct gb_pull *pull, struct gb_pull_part parts[GB_PULL_CONNECTIONS_MAX]) {
    uint64_t most = (pull->source.bytes + PART_LEAST_BYTES - 1) / PART_LEAST_BYTES;
    unsigned count = pull->params.connections > 0 ? pull->params.connections : GB_PULL_CONNECTIONS;
    uint64_t each;
    uint64_t at;
    unsigned n = 0;

    count = count < most ? count : (unsigned)most;
    if (count == 0)
        return 0;
    each = (pull->source.bytes + count - 1) / count;
    each = (each + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
    for (at = 0; at < pull->source.bytes; at += each) {
        uint64_t left = pull->source.bytes - at;

        parts[n++] = (struct gb_pull_part){.pull = pull, .at = at, .bytes = left < each ? left : each};
    }
    return n;
}

/* The first part runs on this thread, over the pull's connection. So does a part for which no thread can be started. */
static void run_parts(struct gb_pull_part *parts, struct gb_pull_conn *conns, unsigned count) {
    struct gb_pull *pull = parts[0].pull;
    unsigned i;

    parts[0].conn = &pull->conn;
    for (i = 1; i < count; i++) {
        parts[i].conn = &conns[i - 1];
        gb_pull_conn_init(parts[i].conn, pull);
        parts[i].started = gb_thread_start(&parts[i].thread, "gb-pull-part", part_main, &parts[i], NULL) == 0;
    }
    for (i = 0; i < count; i++) {
        if (!parts[i].started)
            pull_part_run(&parts[i]);
    }
    for (i = 0; i < count; i++) {
        if (parts[i].started)
            pthread_join(parts[i].thread, NULL);
    }
}

/* The first part that failed by itself gives the error. */
static enum gb_pull_outcome outcome_of(struct gb_pull *pull, const struct gb_pull_part *parts, unsigned count,
                                       struct gb_error *err) {
    enum gb_pull_outcome ret = GB_PULL_OK;
    unsigned i;

    for (i = 0; i < count; i++) {
        pull->numbers.received_bytes += parts[i].received;
        pull->numbers.resumed += parts[i].resumed;
        if (parts[i].outcome == GB_PULL_OK || (parts[i].outcome == GB_PULL_STOPPED && ret != GB_PULL_OK))
            continue;
        if (ret == GB_PULL_OK || ret == GB_PULL_STOPPED) {
            ret = parts[i].outcome;
            *err = parts[i].error;
        }
    }
    return ret;
}

static enum gb_pull_outcome bring(struct gb_pull *pull, struct gb_error *err) {
    struct gb_pull_part parts[GB_PULL_CONNECTIONS_MAX];
    unsigned count = plan(pull, parts);
    struct gb_error why = GB_ERROR_INIT;
    enum gb_pull_outcome outcome;
    struct gb_pull_conn *conns;
    eventfd_t n;

    pull->numbers.connections = count;
    if (count == 0)
        return GB_PULL_OK;
    conns = calloc(count, sizeof(*conns));
    if (!conns) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the pull; try again later");
        return GB_PULL_FAILED;
    }
    run_parts(parts, conns, count);
    free(conns);
    outcome = outcome_of(pull, parts, count, &why);
    if (atomic_exchange(&pull->halted, false))
        (void)eventfd_read(pull->halt, &n);
    if (outcome != GB_PULL_OK)
        gb_error_move(err, &why);
    return outcome;
}

/* --- the pull ----------------------------------------------------------------------------------------------------- */

static enum gb_pull_outcome describe(struct gb_pull *pull, struct gb_error *err) {
    struct gb_pull_patience patience = {.most = DESCRIBE_FAILURES_MAX};
    struct gb_pull_place *place;
    struct gb_error why;
    enum gb_pull_outcome outcome;

    do {
        why = GB_ERROR_INIT;
        place = atomic_load(&pull->place);
        outcome = gb_pull_describe(&pull->conn, place, &pull->source, &why);
        if (outcome == GB_PULL_BROKEN) {
            gb_pull_conn_close(&pull->conn);
            gb_pull_begin_failover(pull, &patience, &why);
        }
    } while (outcome == GB_PULL_BROKEN && gb_pull_again(pull, &patience, 0));
    if (outcome == GB_PULL_OK && !gb_pull_is_meant(pull, place, &pull->source, &why))
        outcome = GB_PULL_FAILED;
    if (outcome == GB_PULL_OK && pull->if_match && strcmp(pull->if_match, pull->source.tag) != 0) {
        gb_error_set(&why, GB_ERR_SOURCE_CHANGED, "the source has the entity tag %s, and %s was asked for",
                     pull->source.tag, pull->if_match);
        outcome = GB_PULL_FAILED;
    }
    if (outcome == GB_PULL_OK)
        strcpy(place->tag, pull->source.tag); /* no part runs */
    else
        gb_error_move(err, &why);
    return outcome;
}

static void note_source(struct gb_pull *pull) {
    strcpy(pull->numbers.tag, pull->source.tag);
    pull->numbers.generation = pull->source.generation;
    pull->numbers.bytes = pull->source.bytes;
    pull->numbers.verified = pull->source.has_crc32c;
}

static enum gb_pull_outcome attempt(struct gb_pull *pull, struct gb_error *err) {
    enum gb_pull_outcome outcome = describe(pull, err);

    if (outcome != GB_PULL_OK)
        return outcome == GB_PULL_CHANGED ? GB_PULL_FAILED : outcome;
    note_source(pull);
    if (begin(pull, err) < 0)
        return GB_PULL_FAILED;
    outcome = bring(pull, err);
    if (outcome != GB_PULL_OK)
        return outcome;
    if (!pull_commits(pull))
        return GB_PULL_STOPPED;
    return complete(pull, err) < 0 ? GB_PULL_FAILED : GB_PULL_OK;
}

/* Runs all steps of a pull. Returns 0 with call->written set, or -1. [the pull's thread] */
static int pull_run(struct gb_pull *pull, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    enum gb_pull_outcome outcome;

    gb_pull_conn_init(&pull->conn, pull);
    outcome = attempt(pull, &why);
    while (outcome == GB_PULL_CHANGED && !pull->if_match && pull->numbers.begun_again < GB_PULL_BEGIN_AGAIN_MAX) {
        give_up(pull);
        why = GB_ERROR_INIT;
        pull->numbers.begun_again++;
        outcome = attempt(pull, &why);
    }
    gb_pull_conn_close(&pull->conn);
    gb_text_unref(pull->source.labels);
    pull->numbers.failovers = gb_pull_failovers(pull);
    if (outcome == GB_PULL_OK)
        return 0;
    give_up(pull);
    if (why.code == GB_ERR_SOURCE_CHANGED && pull->params.tag_is_condition)
        why.code = GB_ERR_PRECONDITION_FAILED;
    return gb_error_move(err, &why);
}

/* --- all pulls ---------------------------------------------------------------------------------------------------- */

#define NO_THREAD "the system gives no thread for the pull; try again later"

/* --- lists -------------------------------------------------------------------------------------------------------- */

static void append(struct gb_pull **list, struct gb_pull *pull) {
    while (*list)
        list = &(*list)->next;
    pull->next = NULL;
    *list = pull;
}

static bool withdraw(struct gb_pull **list, struct gb_pull *pull) {
    for (; *list; list = &(*list)->next)
        if (*list == pull) {
            *list = pull->next;
            return true;
        }
    return false;
}

/* --- one pull ----------------------------------------------------------------------------------------------------- */

static bool copy_text(const char *text, char **ret) {
    *ret = text ? strdup(text) : NULL;
    return !text || *ret;
}

static bool copy_permitted(struct gb_pull *pull, const struct gb_pull_params *params) {
    size_t i;

    pull->permitted = calloc(params->permitted_count + 1, sizeof(char *));
    if (!pull->permitted)
        return false;
    for (i = 0; i < params->permitted_count; i++)
        if (!copy_text(params->permitted[i], &pull->permitted[i]))
            return false;
    return true;
}

/* Takes what params hand over. NULL with err. */
static struct gb_pull *pull_new(struct gb_pulls *pulls, const struct gb_pull_params *params, struct gb_pull_call *call,
                                struct gb_error *err) {
    struct gb_pull *pull = calloc(1, sizeof(*pull));

    if (!pull) {
        free_params(params);
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the pull; try again later");
        return NULL;
    }
    atomic_init(&pull->refs, 1);
    pull->pulls = pulls;
    pull->call = call;
    pull->params = *params;
    strcpy(pull->first.origin, params->from.origin);
    pull->first.ticket = params->ticket;
    atomic_init(&pull->place, &pull->first);
    pull->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pull->halt = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (copy_permitted(pull, params) && copy_text(params->token, &pull->token) &&
        copy_text(params->if_match, &pull->if_match) && pull->stop >= 0 && pull->halt >= 0)
        return pull;
    gb_error_set(err, GB_ERR_SATURATED, "no memory, or no descriptor, for the pull; try again later");
    pull_unref(pull);
    return NULL;
}

static void stop_locked(struct gb_pull *pull, enum gb_code why) {
    if (pull->why == GB_OK)
        pull->why = why;
    atomic_store(&pull->stopped, true);
    (void)eventfd_write(pull->stop, 1);
}

/* --- the threads -------------------------------------------------------------------------------------------------- */

static void start_more_locked(struct gb_pulls *pulls);

static int stopped_error(enum gb_code why, struct gb_error *err) {
    if (why == GB_ERR_DRAINING)
        return gb_error_set(err, GB_ERR_DRAINING, "the daemon is stopping; the pull was given up, nothing was changed");
    return gb_cancelled(err);
}

/* Finishes the call without the lock, because done may start another pull. */
static void pulls_finish(struct gb_pull *pull, int r, struct gb_error *err) {
    struct gb_pulls *pulls = pull->pulls;

    (void)gb_call_withdraw(&pull->call->written.base, NULL);
    pthread_mutex_lock(&pulls->lock);
    if (r < 0 && pull->why != GB_OK) {
        *err = GB_ERROR_INIT;
        stopped_error(pull->why, err);
    }
    if (r < 0 && err->code == GB_OK)
        gb_error_set(err, GB_ERR_INTERNAL, "the pull has ended without a reason");
    pulls->stat.done += r == 0;
    pulls->stat.failed += r < 0;
    pulls->stat.resumed += pull->numbers.resumed;
    pulls->stat.begun_again += pull->numbers.begun_again;
    pthread_mutex_unlock(&pulls->lock);
    pull->call->numbers = pull->numbers;
    gb_call_finish(&pull->call->written.base, r < 0 ? err : NULL);
}

static struct gb_pull *take_queue_locked(struct gb_pulls *pulls) {
    struct gb_pull *queue = pulls->queue;

    pulls->queue = NULL;
    pulls->stat.waiting = 0;
    return queue;
}

/* Ends queued pulls. */
static void finish_all(struct gb_pull *queue, const struct gb_error *why) {
    struct gb_error err;
    struct gb_pull *pull;

    while ((pull = queue)) {
        queue = pull->next;
        err = *why;
        pulls_finish(pull, -1, &err);
        pull_unref(pull);
    }
}

static void *pull_main(void *arg) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_error lack = GB_ERROR_INIT;
    struct gb_pull *stranded =
        NULL; /* no thread can be started for them, and no pull is running whose end they could wait for */
    struct gb_pull *pull = arg;
    struct gb_pulls *pulls = pull->pulls;
    int r = pull_run(pull, &err);

    pulls_finish(pull, r, &err);
    pthread_mutex_lock(&pulls->lock);
    pull->state = GB_PULL_ENDED;
    withdraw(&pulls->runs, pull);
    append(&pulls->ended, pull);
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

/* If no thread can be started, queued pulls wait until a running one ends; without a running one they fail. */
static void start_more_locked(struct gb_pulls *pulls) {
    struct gb_pull *pull;

    while (!pulls->closing && pulls->queue && pulls->stat.running < pulls->running_max) {
        pull = pulls->queue;
        if (gb_thread_start(&pull->thread, "gb-pull", pull_main, pull, NULL) < 0)
            return;
        pulls->queue = pull->next;
        pull->state = GB_PULL_RUNS;
        append(&pulls->runs, pull);
        pulls->stat.waiting--;
        pulls->stat.running++;
    }
}

static void join_ended(struct gb_pulls *pulls) {
    struct gb_pull *ended;
    struct gb_pull *next;

    pthread_mutex_lock(&pulls->lock);
    ended = pulls->ended;
    pulls->ended = NULL;
    pthread_mutex_unlock(&pulls->lock);
    for (; ended; ended = next) {
        next = ended->next;
        pthread_join(ended->thread, NULL);
        pull_unref(ended);
    }
}

/* --- cancelling --------------------------------------------------------------------------------------------------- */

static bool hold(void *arg) {
    atomic_fetch_add(&((struct gb_pull *)arg)->refs, 1);
    return true;
}

/* Operations show a running pull as running, although it can be cancelled. */
static bool cancel(void *arg, bool act) {
    struct gb_pull *pull = arg;
    struct gb_pulls *pulls = pull->pulls;
    struct gb_error err = GB_ERROR_INIT;
    bool waited = false;
    bool r;

    pthread_mutex_lock(&pulls->lock);
    r = pull->state == GB_PULL_WAITS || (act && pull->state == GB_PULL_RUNS);
    if (r && act) {
        stop_locked(pull, GB_ERR_CANCELLED);
        waited = withdraw(&pulls->queue, pull);
        pulls->stat.waiting -= waited;
    }
    pthread_mutex_unlock(&pulls->lock);
    if (waited) {
        pulls_finish(pull, -1, &err);
        pull_unref(pull);
    }
    pull_unref(pull);
    return r;
}

/* --- pulls: beginning and end ------------------------------------------------------------------------------------- */

static int admit_locked(struct gb_pulls *pulls, struct gb_pull *pull, struct gb_error *err) {
    if (pulls->closing || pull->why != GB_OK)
        return stopped_error(pulls->closing ? GB_ERR_DRAINING : pull->why, err);
    if (pulls->stat.waiting >= GB_PULLS_WAITING)
        return gb_error_set(err, GB_ERR_SATURATED, "%d pulls wait already (--pulls %u run at a time); try again later",
                            GB_PULLS_WAITING, pulls->running_max);
    append(&pulls->queue, pull);
    pulls->stat.waiting++;
    start_more_locked(pulls);
    if (pulls->stat.running > 0)
        return 0;
    withdraw(&pulls->queue, pull);
    pulls->stat.waiting--;
    return gb_error_set(err, GB_ERR_SATURATED, NO_THREAD);
}

void gb_pull_start(struct gb_pulls *pulls, const struct gb_pull_params *params, struct gb_pull_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_pull *pull = pull_new(pulls, params, call, &err);
    int r = pull ? 0 : -1;

    join_ended(pulls);
    if (pull) {
        gb_call_offer(&call->written.base, hold, cancel, pull);
        pthread_mutex_lock(&pulls->lock);
        r = admit_locked(pulls, pull, &err);
        pthread_mutex_unlock(&pulls->lock);
    }
    if (r == 0)
        return;
    if (pull) {
        (void)gb_call_withdraw(&call->written.base, NULL);
        pull_unref(pull);
    }
    gb_call_finish(&call->written.base, &err);
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
        ok = copy_text(config->ca_file, &pulls->ca_file);
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
    pthread_mutex_init(&pulls->lock, NULL);
    gb_cond_init(&pulls->idle);
    *ret = pulls;
    return 0;
}

void gb_pulls_close(struct gb_pulls *pulls) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_pull *queue;
    struct gb_pull *pull;

    if (!pulls)
        return;
    pthread_mutex_lock(&pulls->lock);
    pulls->closing = true;
    queue = take_queue_locked(pulls);
    for (pull = queue; pull; pull = pull->next)
        stop_locked(pull, GB_ERR_DRAINING);
    for (pull = pulls->runs; pull; pull = pull->next)
        stop_locked(pull, GB_ERR_DRAINING);
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
