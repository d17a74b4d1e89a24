/* Entity tags, the preconditions on them, and GETs that wait until a tag changes. The core asks for a precondition
 * where it makes the change, under its lock. One thread, gb-poll, compares the tags of requests that wait. */
#include "api/pipeline/conditional.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/reply.h"
#include "api/request/body.h"
#include "api/request/query.h"
#include "base/clock.h"
#include "base/encoding.h"
#include "base/thread.h"
#include "core/core.h"
#include "http/message/fields.h"

/* --- conditional -------------------------------------------------------------------------------------------------- */

bool gb_etag_holds(const struct gb_buffer_rec *rec) {
    return !rec->mapped_for_writing && !rec->tainted && !rec->adopted;
}

/* Another process may be writing these bytes: each reply gets a tag of its own, which matches nothing. */
static int data_tag(const struct gb_buffer_rec *rec, char *out) {
    char *at = gb_digits(out, (uint64_t)rec->id);
    int n;

    *at++ = '.';
    at = gb_digits(at, (uint64_t)rec->generation);
    *at++ = '.';
    at = gb_digits_hex(at, rec->run, 8);
    *at = '\0';
    n = (int)(at - out);
    if (!gb_etag_holds(rec))
        n += snprintf(at, GB_ETAG_SIZE - (size_t)n, ".w%" PRIx64, gb_clock_ns());
    return n;
}

/* Versions count within a process: where an earlier one wrote the bytes, the tag has this one's number as well. n:
 * characters that out has already. */
static void version_tag(const struct gb_buffer_rec *rec, const char *form, char *out, int n) {
    n += snprintf(out + n, GB_ETAG_SIZE - (size_t)n, "-%s%" PRId64, form, rec->version);
    if (rec->record_run != rec->run && n < GB_ETAG_SIZE)
        snprintf(out + n, GB_ETAG_SIZE - (size_t)n, ".%08" PRIx32, rec->record_run);
}

char *gb_etag_data(const struct gb_buffer_rec *rec, enum gb_form form, char *out) {
    int n = data_tag(rec, out);

    /* The other forms also change with dtype, shape and labels. */
    if (form != GB_FORM_RAW)
        version_tag(rec, form == GB_FORM_NPY ? "npy" : "st", out, n);
    return out;
}

char *gb_etag_values(const struct gb_buffer_rec *rec, enum gb_notation notation, char *out) {
    int n = data_tag(rec, out);

    version_tag(rec, notation == GB_NOTATION_JSON ? "json" : "text", out, n);
    return out;
}

char *gb_etag_slice(const struct gb_buffer_rec *rec, char *out) {
    int n = data_tag(rec, out);

    version_tag(rec, "slice", out, n);
    return out;
}

char *gb_etag_buffer(const struct gb_buffer_rec *rec, char *out) {
    snprintf(out, GB_ETAG_SIZE, "b%" PRId64 ".%" PRId64 ".%08" PRIx32, rec->id, rec->version, rec->record_run);
    return out;
}

char *gb_etag_session(const struct gb_session_view *view, char *out) {
    int n = snprintf(out, GB_ETAG_SIZE, "s%" PRId64 ".%" PRId64 "-%" PRIu64 "-%" PRIu64, view->rec.id,
                     view->rec.version, view->used_bytes, view->buffers);

    /* The end of a current pool changes the session, and not its record. */
    if (view->pools_mark > 0)
        snprintf(out + n, GB_ETAG_SIZE - (size_t)n, "-p%" PRIx64, view->pools_mark);
    return out;
}

char *gb_etag_event(const struct gb_event_view *view, char *out) {
    snprintf(out, GB_ETAG_SIZE, "e%" PRId64 ".%" PRIx64 ".%" PRIu64 "-%d", view->id, (uint64_t)view->created_at_us,
             view->records, view->done);
    return out;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* Joins the values of all lines of the header by commas. *ret: NULL if the header is absent. */
static int join(const struct gb_http_request *request, const char *name, char **ret, struct gb_error *err) {
    size_t size = 0;
    const char *line;
    char *list;
    unsigned at = 0;

    *ret = NULL;
    while ((line = gb_http_header_next(request, name, &at)))
        size += strlen(line) + 2;
    if (size == 0)
        return 0;
    list = malloc(size);
    if (!list)
        return gb_error_memory(err, "request");
    list[0] = '\0';
    at = 0;
    while ((line = gb_http_header_next(request, name, &at))) {
        if (list[0] != '\0')
            strcat(list, ",");
        strcat(list, line);
    }
    if (gb_etag_list_check(name, list, err) < 0) {
        free(list);
        return -1;
    }
    *ret = list;
    return 0;
}

int gb_conditions_read(const struct gb_http_request *request, struct gb_conditions **ret, struct gb_error *err) {
    struct gb_conditions *c = calloc(1, sizeof(*c));

    if (!c)
        return gb_error_memory(err, "request");
    if (join(request, "If-Match", &c->if_match, err) < 0 ||
        join(request, "If-None-Match", &c->if_none_match, err) < 0) {
        gb_conditions_free(c);
        return -1;
    }
    *ret = c;
    return 0;
}

void gb_conditions_free(void *conditions) {
    struct gb_conditions *c = conditions;

    if (!c)
        return;
    free(c->if_match);
    free(c->if_none_match);
    free(c->labels);
    free(c);
}

int gb_conditions_labels(struct gb_conditions *conditions, const char *labels, struct gb_error *err) {
    free(conditions->labels);
    conditions->labels = strdup(labels);
    if (!conditions->labels)
        return gb_error_memory(err, "request");
    return 0;
}

/* --- changes ------------------------------------------------------------------------------------------------------ */

static int judge(const char *what, bool match_failed, bool none_match_failed, bool exists, struct gb_error *err) {
    if (match_failed)
        return gb_error_set(err, GB_ERR_PRECONDITION_FAILED, "If-Match asks for another version; the %s %s", what,
                            exists ? "has changed since" : "does not exist");
    if (none_match_failed)
        return gb_error_set(err, GB_ERR_PRECONDITION_FAILED, "If-None-Match excludes the %s as it is now", what);
    return 0;
}

static int raced(const char *what, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_PRECONDITION_FAILED,
                        "another request changed the %s at the same time; send it again", what);
}

/* Whether the list has a tag of the buffer: of its bytes, in any form, or of its metadata. */
static bool names_buffer(const char *list, bool weak, const struct gb_buffer_rec *rec) {
    char text[GB_FORM_COUNT + 4][GB_ETAG_SIZE];
    const char *tags[GB_FORM_COUNT + 4];
    int form;

    for (form = 0; form < GB_FORM_COUNT; form++)
        tags[form] = gb_etag_data(rec, (enum gb_form)form, text[form]);
    tags[GB_FORM_COUNT] = gb_etag_buffer(rec, text[GB_FORM_COUNT]);
    tags[GB_FORM_COUNT + 1] = gb_etag_slice(rec, text[GB_FORM_COUNT + 1]);
    tags[GB_FORM_COUNT + 2] = gb_etag_values(rec, GB_NOTATION_JSON, text[GB_FORM_COUNT + 2]);
    tags[GB_FORM_COUNT + 3] = gb_etag_values(rec, GB_NOTATION_TEXT, text[GB_FORM_COUNT + 3]);
    return gb_etag_list_match(list, weak, tags, GB_FORM_COUNT + 4);
}

int gb_conditions_buffer(void *conditions, const struct gb_buffer_rec *rec, struct gb_error *err) {
    const struct gb_conditions *c = conditions;

    if (rec && ((c->labels && strcmp(c->labels, gb_labels_text(rec->labels)) != 0) ||
                (c->generation > 0 && c->generation != rec->generation)))
        return raced("buffer", err);
    return judge("buffer", c->if_match && !(rec && names_buffer(c->if_match, false, rec)),
                 c->if_none_match && rec && names_buffer(c->if_none_match, true, rec), rec != NULL, err);
}

/* tag: of the source's bytes, with its quotes. */
static int source_check(void *tag, const struct gb_buffer_rec *rec, struct gb_error *err) {
    char text[GB_ETAG_SIZE];
    size_t n = strlen(gb_etag_data(rec, GB_FORM_RAW, text));

    if (strlen(tag) == n + 2 && memcmp((const char *)tag + 1, text, n) == 0)
        return 0;
    return gb_error_set(err, GB_ERR_PRECONDITION_FAILED, "the source has the entity tag \"%s\", and %s was asked for%s",
                        text, (const char *)tag,
                        gb_etag_holds(rec) ? "" : ": another process may write its bytes, so that no tag holds");
}

int gb_conditions_source(const json_t *body, struct gb_device_write_params *ret, struct gb_error *err) {
    const char *tag;
    int r = gb_action_read_tag(body, "from_if_match", &tag, err);

    ret->from_check = NULL;
    if (r <= 0)
        return r;
    ret->from_check = source_check;
    snprintf(ret->from_tag, sizeof(ret->from_tag), "%s", tag); /* one that is longer is no buffer's */
    return 0;
}

/* Whether the list holds a tag of this session's record, whatever the session held when the tag was given out. */
static bool names_session(const char *list, bool weak, const struct gb_session_rec *rec) {
    char text[GB_ETAG_SIZE];
    struct gb_etag tag;
    const char *at = list;
    size_t n = (size_t)snprintf(text, sizeof(text), "s%" PRId64 ".%" PRId64 "-", rec->id, rec->version);

    while (gb_etag_next(list, &at, &tag) > 0) {
        if (tag.any)
            return true;
        if (tag.weak && !weak)
            continue;
        /* The part before the '-' alone will do as well. */
        if ((tag.len >= n && memcmp(tag.s, text, n) == 0) || (tag.len == n - 1 && memcmp(tag.s, text, n - 1) == 0))
            return true;
    }
    return false;
}

int gb_conditions_session(void *conditions, const struct gb_session_rec *rec, struct gb_error *err) {
    const struct gb_conditions *c = conditions;

    if (rec && c->labels && strcmp(c->labels, gb_labels_text(rec->labels)) != 0)
        return raced("session", err);
    return judge("session", c->if_match && (!rec || !names_session(c->if_match, false, rec)),
                 c->if_none_match && rec && names_session(c->if_none_match, true, rec), rec != NULL, err);
}

struct gb_buffer_check gb_conditions_buffer_check(struct gb_conditions *c) {
    bool any = c->if_match || c->if_none_match || c->labels || c->generation > 0;

    return (struct gb_buffer_check){
        .check = any ? gb_conditions_buffer : NULL, .arg = c, .free_arg = gb_conditions_free};
}

struct gb_session_check gb_conditions_session_check(struct gb_conditions *conditions) {
    return (struct gb_session_check){.check = gb_conditions_session, .arg = conditions, .free_arg = gb_conditions_free};
}

/* --- reads -------------------------------------------------------------------------------------------------------- */

int gb_conditions_get(const struct gb_http_request *request, const char *tag, struct gb_http_response *response,
                      struct gb_error *err) {
    struct gb_conditions *c;
    int r = 1;

    if (gb_http_response_header(response, err, "ETag", "\"%s\"", tag) < 0)
        return -1;
    if (!gb_http_header(request, "If-Match") && !gb_http_header(request, "If-None-Match"))
        return 1;
    if (gb_conditions_read(request, &c, err) < 0)
        return -1;
    if (c->if_match && !gb_etag_list_match(c->if_match, false, &tag, 1)) {
        r = judge("resource", true, false, true, err);
    } else if (c->if_none_match && gb_etag_list_match(c->if_none_match, true, &tag, 1)) {
        response->status = 304;
        r = 0;
    }
    gb_conditions_free(c);
    return r;
}

/* --- long polls --------------------------------------------------------------------------------------------------- */

#define WAIT_MAX_S 3600 /* the server cuts it to --wait-max */
#define TURN 64         /* requests looked at under one hold of the lock */

struct gb_poll {
    TAILQ_ENTRY(gb_poll) link;
    struct gb_polls *polls;
    struct gb_http_request *request;
    gb_http_handler *handler;
    gb_poll_same *same;
    uint64_t sequence;
    uint64_t deadline_ns;
    bool listed;
    char tag[GB_ETAG_SIZE];
};

TAILQ_HEAD(gb_poll_list, gb_poll);

struct gb_polls {
    struct gb_core *core;
    struct gb_worker worker;
    bool idle;            /* the worker's alone: it sleeps until a request waits */
    pthread_mutex_t lock; /* guards all below */
    struct gb_poll_list list;
    unsigned count;
    unsigned local; /* of them over UNIX sockets */
    bool ending;    /* no request waits any more */
};

/* --- the thread --------------------------------------------------------------------------------------------------- */

static void look_locked(struct gb_polls *polls, struct gb_poll *p) {
    uint64_t sequence = gb_core_sequence(polls->core);

    if (sequence == p->sequence)
        return;
    p->sequence = sequence;
    if (!p->same || !p->same(polls->core, p->request, p->tag))
        gb_http_wake(p->request);
}

/* In turns, so that a request that comes or goes meanwhile waits for few. */
static void look_at_all(struct gb_polls *polls) {
    unsigned left;

    pthread_mutex_lock(&polls->lock);
    for (left = polls->count; left > 0 && polls->count > 0; left--) {
        struct gb_poll *p = TAILQ_FIRST(&polls->list);

        TAILQ_REMOVE(&polls->list, p, link);
        TAILQ_INSERT_TAIL(&polls->list, p, link);
        look_locked(polls, p);
        if (left % TURN == 0) {
            pthread_mutex_unlock(&polls->lock);
            pthread_mutex_lock(&polls->lock);
        }
    }
    pthread_mutex_unlock(&polls->lock);
}

/* The kick of the first request that waits only begins the delay: a burst of changes then wakes that request once. */
static uint64_t run(void *arg) {
    struct gb_polls *polls = arg;

    if (!polls->idle)
        look_at_all(polls);
    pthread_mutex_lock(&polls->lock);
    polls->idle = polls->count == 0;
    pthread_mutex_unlock(&polls->lock);
    return polls->idle ? 0 : GB_RESPONSE_CACHE_AGE_NS / GB_NS_PER_MS;
}

struct gb_polls *gb_polls_new(struct gb_core *core) {
    struct gb_polls *polls = calloc(1, sizeof(*polls));

    if (!polls)
        return NULL;
    polls->core = core;
    polls->idle = true;
    TAILQ_INIT(&polls->list);
    gb_mutex_init(&polls->lock);
    gb_worker_init(&polls->worker);
    if (gb_worker_start(&polls->worker, "gb-poll", 0, run, polls, NULL) == 0)
        return polls;
    gb_polls_free(polls);
    return NULL;
}

void gb_polls_free(struct gb_polls *polls) {
    if (!polls)
        return;
    gb_worker_stop(&polls->worker);
    gb_worker_done(&polls->worker);
    pthread_mutex_destroy(&polls->lock);
    free(polls);
}

static void wake_all(struct gb_polls *polls, bool ending) {
    struct gb_poll *p;

    pthread_mutex_lock(&polls->lock);
    polls->ending = polls->ending || ending;
    TAILQ_FOREACH(p, &polls->list, link)
    gb_http_wake(p->request);
    pthread_mutex_unlock(&polls->lock);
}

void gb_polls_end(struct gb_polls *polls) {
    wake_all(polls, true);
}

void gb_polls_recheck(struct gb_polls *polls) {
    wake_all(polls, false);
}

/* --- those that wait ---------------------------------------------------------------------------------------------- */

static void poll_free(void *arg) {
    struct gb_poll *p = arg;
    struct gb_polls *polls = p->polls;

    pthread_mutex_lock(&polls->lock);
    if (p->listed) {
        TAILQ_REMOVE(&polls->list, p, link);
        polls->count--;
        polls->local -= p->request->local;
    }
    pthread_mutex_unlock(&polls->lock);
    free(p);
}

static struct gb_poll *poll_new(struct gb_polls *polls, struct gb_http_request *request) {
    unsigned wait_s = gb_http_prefer_wait(request, 0, WAIT_MAX_S, NULL);
    struct gb_poll *p = wait_s > 0 && !request->detached ? calloc(1, sizeof(*p)) : NULL;

    if (!p)
        return NULL;
    p->polls = polls;
    p->request = request;
    p->deadline_ns = gb_clock_ns() + wait_s * GB_NS_PER_S;
    request->state = p;
    request->state_free = poll_free;
    return p;
}

/* Puts the request on the list. Returns false when it may not wait. */
static bool list(struct gb_polls *polls, struct gb_poll *p, gb_poll_same *same, const char *tag, uint64_t sequence) {
    bool may;

    pthread_mutex_lock(&polls->lock);
    may = !polls->ending && (p->listed || !p->request->local || polls->local < GB_POLLS_LOCAL_MAX);
    if (may) {
        snprintf(p->tag, sizeof(p->tag), "%s", tag);
        p->same = same;
        p->sequence = sequence;
    }
    if (may && !p->listed) {
        TAILQ_INSERT_TAIL(&polls->list, p, link);
        p->listed = true;
        polls->local += p->request->local;
        if (polls->count++ == 0)
            gb_worker_kick(&polls->worker);
    }
    pthread_mutex_unlock(&polls->lock);
    return may;
}

/* Checks the token again: it may have been removed meanwhile. */
static enum gb_step again(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    const struct gb_poll *p = request->state;

    if (gb_api_authorize(NULL, request, err) < 0)
        return GB_STEP_ERROR;
    return p->handler(request, response, err);
}

enum gb_step gb_poll_unchanged(struct gb_polls *polls, struct gb_http_request *request,
                               struct gb_http_response *response, gb_http_handler *handler, gb_poll_same *same,
                               const char *tag, uint64_t sequence) {
    struct gb_poll *p = request->state;

    if (request->timed_out)
        return GB_STEP_REPLY;
    if (!p)
        p = poll_new(polls, request);
    if (!p || !list(polls, p, same, tag, sequence))
        return GB_STEP_REPLY;
    gb_http_response_done(response); /* the handler runs again from its start */
    p->handler = handler;
    request->resume = again;
    request->deadline_ns = p->deadline_ns;
    request->park = true;
    return GB_STEP_WAIT;
}
