#include "api/middleware/conditional.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/request/actions.h"
#include "api/request/media.h"
#include "base/clock.h"
#include "base/encoding.h"
#include "http/message/fields.h"

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

    /* The end of its current pool changes the session, and not its record. */
    if (view->pool_id > 0)
        snprintf(out + n, GB_ETAG_SIZE - (size_t)n, "-p%" PRId64, view->pool_id);
    return out;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* Joins the values of all lines of the header by commas. *ret: NULL when there is none. */
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
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
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
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
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
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
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

/* Tells whether the list has a tag of the buffer: of its bytes, in any form, or of its metadata. */
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

int gb_conditions_source(const json_t *body, struct gb_buffer_check *ret, struct gb_error *err) {
    const char *tag;
    int r = gb_action_read_tag(body, "from_if_match", &tag, err);

    *ret = (struct gb_buffer_check){.check = NULL};
    if (r <= 0)
        return r;
    ret->check = source_check;
    ret->arg = (char *)tag;
    return 0;
}

/* Tells whether the list holds a tag of this session's record, whatever the session held when the tag was given out. */
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
