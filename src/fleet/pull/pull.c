/* The steps of a pull: the source's record is read, memory is taken, the parts are received, the whole is committed.
 * Nothing is visible before the commit. The API and fleet/arrival start pulls. */
#include "fleet/pull/pull.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/runtime/call.h"
#include "fleet/pull/source.h"

struct gb_pull_part {
    struct gb_fetch_part part; /* first */
    struct gb_pull *pull;
    struct gb_pull_conn *conn; /* its own, or the pull's */
};

/* Frees what params hand over. */
static void free_params(const struct gb_pull_params *params) {
    if (params->ticket.free_arg)
        params->ticket.free_arg(params->ticket.arg);
    if (params->failover.free_arg)
        params->failover.free_arg(params->failover.arg);
}

static void gone(struct gb_fetch *fetch) {
    struct gb_pull *pull = (struct gb_pull *)fetch;

    gb_texts_free(pull->permitted);
    gb_pull_places_free(pull);
    free_params(&pull->params);
    gb_fetch_done(fetch);
    free(pull->token);
    free(pull->if_match);
    free(pull);
}

/* --- the steps of one --------------------------------------------------------------------------------------------- */

#define FAILURES_MAX 7 /* in a row */
#define DESCRIBE_FAILURES_MAX 3

/* --- one range: its bytes go from the socket into a part of the multipart upload ---------------------------------- */

/* --- bytes -------------------------------------------------------------------------------------------------------- */

static enum gb_pull_outcome take(struct gb_pull_part *p, void *room, size_t n) {
    struct gb_fetch_part *part = &p->part;
    enum gb_pull_outcome outcome;
    size_t got;

    outcome = gb_pull_conn_recv(p->conn, room, n, &got, &part->error);
    if (outcome != GB_PULL_OK)
        return outcome;
    if (got > 0)
        return gb_fetch_part_fill(part, got, true);
    gb_upload_pause(part->upload, false); /* which takes the room back */
    gb_pull_conn_mark(p->conn, part->bytes - part->got);
    return gb_pull_conn_wait(p->conn, POLLIN, GB_PULL_STALL_MS, &part->error);
}

/* Receives the rest of the range. */
static enum gb_pull_outcome receive(struct gb_pull_part *p) {
    struct gb_fetch_part *part = &p->part;
    enum gb_pull_outcome outcome = GB_PULL_OK;
    void *room;
    size_t n;

    while (outcome == GB_PULL_OK && part->got < part->bytes) {
        outcome = gb_fetch_part_room(part, &room, &n);
        if (outcome == GB_PULL_OK)
            outcome = take(p, room, n < part->bytes - part->got ? n : (size_t)(part->bytes - part->got));
    }
    return outcome;
}

/* --- one connection ----------------------------------------------------------------------------------------------- */

static bool is_range(const struct gb_pull_part *p, const struct gb_pull_head *head) {
    const struct gb_fetch_part *part = &p->part;
    uint64_t left = part->bytes - part->got;

    if (head->coded || !head->has_length || head->length != left)
        return false;
    if (head->status == 200)
        return part->at + part->got == 0 && left == p->pull->source.bytes;
    return head->status == 206 && head->has_range && head->first == part->at + part->got &&
           head->last == part->at + part->bytes - 1 && head->total == p->pull->source.bytes;
}

static enum gb_pull_outcome attempt_range(struct gb_pull_part *p, const struct gb_pull_place *place,
                                          unsigned *ret_retry_after_s) {
    struct gb_fetch_part *part = &p->part;
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
    outcome = gb_pull_request(p->conn, &ask, &head, &part->error);
    if (outcome != GB_PULL_OK)
        return outcome;
    *ret_retry_after_s = head.retry_after_s;
    if (head.status != 200 && head.status != 206)
        return gb_pull_refusal(p->conn, &ask, &head, &part->error);
    if (strcmp(head.tag, place->tag) != 0) {
        gb_error_set(&part->error, GB_ERR_SOURCE_CHANGED, "the source %s answers with other bytes than those asked for",
                     p->conn->origin);
        return GB_PULL_CHANGED;
    }
    if (!is_range(p, &head)) {
        gb_error_set(&part->error, GB_ERR_SOURCE_REFUSED,
                     "the source %s answers with another range than the one asked for, or with a content coding",
                     p->conn->origin);
        return GB_PULL_FAILED;
    }
    return receive(p);
}

static enum gb_pull_outcome bring_range(struct gb_pull_part *p) {
    struct gb_fetch_part *part = &p->part;
    struct gb_pull_patience patience = {.most = FAILURES_MAX};
    const struct gb_pull_place *place;
    unsigned retry_after_s;
    enum gb_pull_outcome outcome;
    uint64_t before;

    for (;;) {
        before = part->got;
        place = atomic_load(&p->pull->place);
        outcome = attempt_range(p, place, &retry_after_s);
        if (outcome != GB_PULL_BROKEN && outcome != GB_PULL_CHANGED)
            return outcome;
        gb_pull_conn_close(p->conn);
        gb_upload_pause(part->upload, true);
        if (part->got > before)
            patience.failures = 0;
        outcome = gb_pull_fail_over(p->conn, place, outcome, &patience, &part->error);
        if (outcome != GB_PULL_OK && outcome != GB_PULL_BROKEN)
            return outcome;
        if (outcome == GB_PULL_BROKEN && !gb_fetch_again(part->fetch, &patience, retry_after_s))
            return patience.failures > patience.most + patience.more ? GB_PULL_FAILED : GB_PULL_STOPPED;
        part->error = GB_ERROR_INIT;
        part->resumed++;
    }
}

static enum gb_pull_outcome bring_part(struct gb_fetch_part *part) {
    struct gb_pull_part *p = (struct gb_pull_part *)part;
    enum gb_pull_outcome outcome = bring_range(p);

    gb_pull_conn_close(p->conn);
    return outcome;
}

/* --- the multipart upload ----------------------------------------------------------------------------------------- */

static int begin(struct gb_pull *pull, struct gb_error *err) {
    const struct gb_pull_source *source = &pull->source;
    struct gb_upload_params params = {.buffer = pull->params.to, .bytes = source->bytes};

    params.buffer.bytes = source->bytes;
    params.buffer.dtype = source->dtype;
    params.buffer.shape = source->shape;
    params.buffer.has_shape = true;
    params.buffer.labels = source->labels;
    params.buffer.has_labels = true;
    params.wait_ms = pull->params.wait_ms;
    atomic_store(&pull->fetch.call->moved_bytes, 0);
    atomic_store(&pull->fetch.call->total_bytes, source->bytes);
    return gb_fetch_begin(&pull->fetch, &params, err);
}

static int check_crc32c(const struct gb_pull *pull, struct gb_error *err) {
    const struct gb_pull_source *source = &pull->source;
    uint32_t crc = 0;

    if (!source->has_crc32c || source->bytes == 0 ||
        !gb_multipart_arrived(gb_pulls_core(pull->fetch.pulls), &pull->params.to.session, pull->fetch.multipart, 0,
                              source->bytes, &crc) ||
        crc == source->crc32c)
        return 0;
    return gb_error_set(err, GB_ERR_SOURCE_REFUSED,
                        "the bytes that came from the source %s have the CRC32C %08x, and it says %08x: they are "
                        "thrown away",
                        pull->params.from.origin, crc, source->crc32c);
}

static int complete(struct gb_pull *pull, struct gb_error *err) {
    struct gb_multipart_expected expected = {.digests = pull->params.digests};
    char from[GB_PULL_ORIGIN_SIZE + 16];

    if (check_crc32c(pull, err) < 0)
        return -1;
    snprintf(from, sizeof(from), "the source %s", pull->params.from.origin);
    return gb_fetch_complete(&pull->fetch, &expected, from, err);
}

/* --- the parts ---------------------------------------------------------------------------------------------------- */

/* The first part has the pull's connection. */
static enum gb_pull_outcome bring(struct gb_pull *pull, struct gb_error *err) {
    struct gb_pull_part parts[GB_PULL_CONNECTIONS_MAX];
    struct gb_fetch_part *list[GB_PULL_CONNECTIONS_MAX];
    uint64_t at[GB_PULL_CONNECTIONS_MAX];
    uint64_t bytes[GB_PULL_CONNECTIONS_MAX];
    unsigned count = gb_fetch_cut(pull->source.bytes, pull->params.connections, at, bytes);
    struct gb_pull_conn *conns = calloc(count + 1, sizeof(*conns));
    enum gb_pull_outcome outcome;
    unsigned i;

    if (!conns) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the pull; try again later");
        return GB_PULL_FAILED;
    }
    for (i = 0; i < count; i++) {
        parts[i] = (struct gb_pull_part){
            .part = {.fetch = &pull->fetch, .bring = bring_part, .at = at[i], .bytes = bytes[i]}, .pull = pull};
        parts[i].conn = i == 0 ? &pull->conn : &conns[i];
        if (i > 0)
            gb_pull_conn_init(parts[i].conn, pull);
        list[i] = &parts[i].part;
    }
    outcome = gb_fetch_bring(&pull->fetch, list, count, err);
    free(conns);
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
    } while (outcome == GB_PULL_BROKEN && gb_fetch_again(&pull->fetch, &patience, 0));
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
    strcpy(pull->fetch.numbers.tag, pull->source.tag);
    pull->fetch.numbers.has_generation = true;
    pull->fetch.numbers.generation = pull->source.generation;
    pull->fetch.numbers.bytes = pull->source.bytes;
    pull->fetch.numbers.verified = pull->source.has_crc32c;
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
    if (!gb_fetch_commits(&pull->fetch))
        return GB_PULL_STOPPED;
    return complete(pull, err) < 0 ? GB_PULL_FAILED : GB_PULL_OK;
}

static int run(struct gb_fetch *fetch, struct gb_error *err) {
    struct gb_pull *pull = (struct gb_pull *)fetch;
    struct gb_error why = GB_ERROR_INIT;
    enum gb_pull_outcome outcome;

    gb_pull_conn_init(&pull->conn, pull);
    outcome = attempt(pull, &why);
    while (outcome == GB_PULL_CHANGED && !pull->if_match && pull->fetch.numbers.begun_again < GB_PULL_BEGIN_AGAIN_MAX) {
        gb_fetch_give_up(&pull->fetch);
        why = GB_ERROR_INIT;
        pull->fetch.numbers.begun_again++;
        outcome = attempt(pull, &why);
    }
    gb_pull_conn_close(&pull->conn);
    gb_text_unref(pull->source.labels);
    pull->fetch.numbers.failovers = gb_pull_failovers(pull);
    if (outcome == GB_PULL_OK)
        return 0;
    gb_fetch_give_up(&pull->fetch);
    if (why.code == GB_ERR_SOURCE_CHANGED && pull->params.tag_is_condition)
        why.code = GB_ERR_PRECONDITION_FAILED;
    return gb_error_move(err, &why);
}

/* --- beginning ---------------------------------------------------------------------------------------------------- */

static bool copy_text(const char *text, char **ret) {
    *ret = text ? strdup(text) : NULL;
    return !text || *ret;
}

static const struct gb_fetch_role role = {run, gone};

/* Takes what params hand over. NULL with err. */
static struct gb_pull *pull_new(struct gb_pulls *pulls, const struct gb_pull_params *params, struct gb_pull_call *call,
                                struct gb_error *err) {
    struct gb_pull *pull = calloc(1, sizeof(*pull));
    struct gb_error why = GB_ERROR_INIT;

    if (!pull) {
        free_params(params);
        if (params->check.free_arg)
            params->check.free_arg(params->check.arg);
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the pull; try again later");
        return NULL;
    }
    pull->params = *params;
    strcpy(pull->first.origin, params->from.origin);
    pull->first.ticket = params->ticket;
    atomic_init(&pull->place, &pull->first);
    pull->permitted = gb_texts_copy(params->permitted, params->permitted_count);
    if (gb_fetch_init(&pull->fetch, pulls, &role, &params->check, call, &why) == 0 && pull->permitted &&
        copy_text(params->token, &pull->token) && copy_text(params->if_match, &pull->if_match))
        return pull;
    if (why.code == GB_OK)
        gb_error_set(&why, GB_ERR_SATURATED, "no memory for the pull; try again later");
    gb_fetch_unref(&pull->fetch);
    gb_error_move(err, &why);
    return NULL;
}

void gb_pull_start(struct gb_pulls *pulls, const struct gb_pull_params *params, struct gb_pull_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_pull *pull = pull_new(pulls, params, call, &err);

    if (pull)
        gb_fetch_submit(&pull->fetch);
    else
        gb_call_finish(&call->written.base, &err);
}
