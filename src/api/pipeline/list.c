/* Lists: which items a request asks for, in which order, one page of them, and the link to the next; and reports that
 * are long. */
#include "api/pipeline/list.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/reply.h"
#include "api/request/query.h"
#include "base/container.h"
#include "base/hash.h"
#include "base/text.h"
#include "http/message/request.h"

/* --- selection ---------------------------------------------------------------------------------------------------- */

static int read_sort(const struct gb_http_request *request, const struct gb_list_offer *offer, struct gb_selection *ret,
                     struct gb_error *err) {
    const struct gb_http_text *sort = gb_http_query(request, "sort");
    size_t at;

    if (!sort)
        return 0;
    ret->sorted = true;
    ret->down = sort->s[0] == '-';
    if (gb_word_parse("sort field", offer->sorts, offer->sort_count, sort->s + ret->down, sort->len - ret->down, &at,
                      err) < 0)
        return -1;
    ret->sort = (unsigned)at;
    return 0;
}

/* Returns 0, or -1 with INVALID_ARGUMENT or INVALID_NAME, whose text says what is permitted. */
static int selection_read(const struct gb_http_request *request, const struct gb_list_offer *offer,
                          struct gb_selection *ret, struct gb_error *err) {
    const struct gb_http_text *state = gb_http_query(request, "state");
    const struct gb_http_text *kind = gb_http_query(request, "kind");

    ret->has_state = state != NULL;
    ret->has_kind = kind != NULL;
    if (gb_query_name(request, "prefix", &ret->prefix, err) < 0 || gb_label_query_read(request, &ret->label, err) < 0 ||
        (state && offer->state(state->s, state->len, &ret->state, err) < 0) ||
        (kind && gb_kind_parse(kind->s, kind->len, &ret->kind, err) < 0))
        return -1;
    return read_sort(request, offer, ret, err);
}

/* Whether something is filtered out. */
static bool selection_filters(const struct gb_selection *selection) {
    return selection->prefix.s[0] != '\0' || selection->label.len > 0 || selection->has_state || selection->has_kind;
}

static bool selection_has(const struct gb_selection *selection, const struct gb_list_item *item) {
    return strncmp(item->name, selection->prefix.s, strlen(selection->prefix.s)) == 0 &&
           (!selection->has_state || item->state == selection->state) &&
           (!selection->has_kind || item->kind == selection->kind) &&
           (!item->labels || gb_label_query_fits(&selection->label, item->labels));
}

/* A number that differs, but for a chance of one in four billion, if the filters or the order do. */
static uint32_t selection_digest(const struct gb_selection *selection) {
    const int words[] = {selection->has_state, selection->state, selection->has_kind, (int)selection->kind,
                         selection->sorted,    selection->down,  (int)selection->sort};
    uint32_t crc = gb_crc32c(0, selection->prefix.s, strlen(selection->prefix.s) + 1);

    crc = gb_crc32c(crc, selection->label.text, selection->label.len);
    return gb_crc32c(crc, words, sizeof(words));
}

/* --- cursors ------------------------------------------------------------------------------------------------------ */

static bool plain(const struct gb_selection *selection) {
    return !selection->sorted && !selection_filters(selection);
}

char *gb_list_cursor_text(const struct gb_selection *selection, const struct gb_list_place *place,
                          char out[GB_LIST_CURSOR_SIZE]) {
    if (plain(selection))
        snprintf(out, GB_LIST_CURSOR_SIZE, "%" PRIu64, place->number);
    else
        snprintf(out, GB_LIST_CURSOR_SIZE, "%" PRIu64 ".%08" PRIx32 "%s%s", place->number, selection_digest(selection),
                 selection->sorted ? "." : "", selection->sorted ? place->name.s : "");
    return out;
}

static int refuse(struct gb_error *err) {
    return gb_error_set(
        err, GB_ERR_INVALID_ARGUMENT,
        "the cursor is of a list with another prefix, label, state, kind or sort; give it with those of "
        "the page it is from, or begin without one");
}

/* text[0..len) has a digest. */
static int parse_digested(const struct gb_selection *selection, const char *text, size_t len, struct gb_list_place *ret,
                          struct gb_error *err) {
    size_t digits = (size_t)((const char *)memchr(text, '.', len) - text);
    size_t name = digits + 1 + 8 + 1;
    char digest[9];

    if (gb_parse_u64(text, digits, &ret->number) != GB_PARSE_OK || ret->number > INT64_MAX)
        return gb_cursor_parse("", 0, NULL, err);
    snprintf(digest, sizeof(digest), "%08" PRIx32, selection_digest(selection));
    if (plain(selection) || len < name - 1 || memcmp(text + digits + 1, digest, 8) != 0)
        return refuse(err);
    if (!selection->sorted)
        return len == name - 1 ? 0 : refuse(err);
    return len > name ? gb_name_parse("name in the cursor", text + name, len - name, &ret->name, err) : refuse(err);
}

int gb_list_cursor_parse(const struct gb_selection *selection, const char *text, size_t len, struct gb_list_place *ret,
                         struct gb_error *err) {
    int64_t id;

    *ret = (struct gb_list_place){.number = 0};
    if (memchr(text, '.', len))
        return parse_digested(selection, text, len, ret, err);
    if (gb_cursor_parse(text, len, &id, err) < 0)
        return -1;
    ret->number = (uint64_t)id;
    return plain(selection) ? 0 : refuse(err);
}

/* --- the first of a sorted list ----------------------------------------------------------------------------------- */

int gb_best_init(struct gb_best *best, size_t keep, bool down, struct gb_error *err) {
    *best = (struct gb_best){.keep = keep, .down = down, .items = malloc(2 * keep * sizeof(*best->items))};
    return best->items ? 0 : gb_error_set(err, GB_ERR_SATURATED, "no memory to sort the list; try again later");
}

void gb_best_done(struct gb_best *best) {
    free(best->items);
    best->items = NULL;
}

/* Whether a comes before b (< 0) in that order. Names decide between equal numbers. */
static int list_place_compare(const struct gb_list_place *a, const struct gb_list_place *b, bool down) {
    int order = a->number < b->number ? -1 : a->number > b->number;

    if (order == 0)
        order = strcmp(a->name.s, b->name.s);
    return down ? -order : order;
}

static int rising(const void *a, const void *b) {
    return list_place_compare(&((const struct gb_best_item *)a)->place, &((const struct gb_best_item *)b)->place,
                              false);
}

static int falling(const void *a, const void *b) {
    return rising(b, a);
}

void gb_best_end(struct gb_best *best) {
    if (best->count > 0) /* else there may be no array */
        qsort(best->items, best->count, sizeof(*best->items), best->down ? falling : rising);
    if (best->count > best->keep)
        best->count = best->keep;
}

void gb_best_offer(struct gb_best *best, const struct gb_list_place *place, int64_t id) {
    if (best->full && list_place_compare(place, &best->worst, best->down) >= 0)
        return;
    best->items[best->count++] = (struct gb_best_item){.place = *place, .id = id};
    if (best->count < 2 * best->keep)
        return;
    gb_best_end(best);
    best->worst = best->items[best->count - 1].place;
    best->full = true;
}

/* --- links -------------------------------------------------------------------------------------------------------- */

#define ENCODED_SIZE 64 /* the name of a parameter has room, with each byte as %XX */

/* A client may have written what ends the target in a Link. */
static char *copy(char *to, const char *text, size_t n) {
    size_t i;

    for (i = 0; i < n; i++) {
        if (strchr("<>\"", text[i]))
            to += sprintf(to, "%%%02X", (unsigned char)text[i]);
        else
            *to++ = text[i];
    }
    return to;
}

/* part[0..n): NAME=VALUE, or NAME, whose bytes may be encoded. */
static bool is_parameter(const char *part, size_t n, const char *name) {
    const char *equals = memchr(part, '=', n);
    size_t len = equals ? (size_t)(equals - part) : n;
    char decoded[ENCODED_SIZE];

    return len < sizeof(decoded) && gb_percent_decode(part, len, decoded, &len) == 0 && strlen(name) == len &&
           memcmp(decoded, name, len) == 0;
}

/* Copies the query without the parameter of that name. Each part ends with '&'. Returns the end. */
static char *copy_others(char *to, const char *query, const char *name) {
    while (*query != '\0') {
        size_t n = strcspn(query, "&");

        if (n > 0 && !is_parameter(query, n, name)) {
            to = copy(to, query, n);
            *to++ = '&';
        }
        query += n + (query[n] != '\0');
    }
    return to;
}

int gb_list_link(const struct gb_http_request *request, const char *name, const char *value,
                 struct gb_http_response *response, struct gb_error *err) {
    const char *target = request->shown.s ? request->shown.s : request->target.s;
    size_t path = strcspn(target, "?");
    size_t size = 3 * strlen(target) + strlen(name) + strlen(value) + sizeof("<?&=>; rel=\"next\"");
    char *link = malloc(size);
    char *to;

    if (!link)
        return gb_error_memory(err, "reply");
    *link = '<';
    to = copy(link + 1, target, path);
    *to++ = '?';
    to = copy_others(to, target + path + (target[path] == '?'), name);
    snprintf(to, size - (size_t)(to - link), "%s=%s>; rel=\"next\"", name, value);
    return gb_http_response_long_header(response, err, "Link", link);
}

enum gb_step gb_list_reply(const struct gb_http_request *request, struct gb_json_writer *out, const char *cursor,
                           struct gb_http_response *response, struct gb_error *err) {
    gb_render_list_close(out, cursor);
    if (!cursor || gb_list_link(request, "cursor", cursor, response, err) == 0)
        return gb_reply_json(out, 200, response, err);
    gb_json_done(out);
    return GB_STEP_ERROR;
}

/* --- items -------------------------------------------------------------------------------------------------------- */

static struct gb_list_place place_of(const struct gb_walk *walk, const struct gb_list_item *item) {
    struct gb_list_place place = {.number = item->sort[walk->selection.sort]};

    if (walk->selection.sort == 0)
        place.number = 0;
    strcpy(place.name.s, item->name);
    return place;
}

static void rank(struct gb_walk *walk, const struct gb_list_item *item) {
    struct gb_list_place place = place_of(walk, item);

    if (walk->after.name.s[0] == '\0' || list_place_compare(&place, &walk->after, walk->selection.down) > 0)
        gb_best_offer(&walk->best, &place, item->id);
}

static bool takes_sorted(struct gb_walk *walk, const struct gb_list_item *item) {
    if (walk->wanted)
        return strcmp(walk->wanted->place.name.s, item->name) == 0;
    rank(walk, item);
    return false;
}

bool gb_walk_takes(struct gb_walk *walk, const struct gb_list_item *item) {
    bool has =
        (!item->buffer || gb_api_has_prefix(&walk->reach, item->buffer)) && selection_has(&walk->selection, item);

    if (has && walk->selection.sorted)
        has = takes_sorted(walk, item);
    else if (has && item->id > 0) {
        walk->full = walk->full || walk->left == 0 || gb_render_list_full(&walk->out);
        has = !walk->full;
        walk->left -= has;
    }
    if (!walk->full)
        walk->last = item->id;
    return has;
}

/* --- by age ------------------------------------------------------------------------------------------------------- */

static bool filters(const struct gb_walk *walk) {
    return walk->reach.s[0] != '\0' || selection_filters(&walk->selection);
}

/* Walks the whole list, or until the page is full. */
static int walk_on(struct gb_walk *walk, gb_list_walk *list, struct gb_error *err) {
    int r;

    do {
        walk->page = (struct gb_page){.after = walk->last, .limit = GB_PAGE_LIMIT_MAX};
        r = list(walk, err);
    } while (r == 0 && walk->page.more);
    return r < 0 ? -1 : 0;
}

/* Without filters the core knows whether something follows, and walks no further than the page. */
static int fill_by_age(struct gb_walk *walk, gb_list_walk *list, bool *ret_more, struct gb_list_place *ret_place,
                       struct gb_error *err) {
    int r;

    walk->last = (int64_t)walk->after.number;
    if (filters(walk)) {
        r = walk_on(walk, list, err);
    } else {
        walk->page = (struct gb_page){.after = walk->last, .limit = walk->limit};
        r = list(walk, err);
    }
    *ret_more = walk->full || walk->page.more;
    *ret_place = (struct gb_list_place){.number = (uint64_t)walk->last};
    return r < 0 ? -1 : 0;
}

/* --- sorted ------------------------------------------------------------------------------------------------------- */

/* Adds the ranked items. One that is gone meanwhile, or has changed so that it is not asked for, is left out. */
static int fill_ranked(struct gb_walk *walk, gb_list_walk *list, bool *ret_more, struct gb_list_place *ret_place,
                       struct gb_error *err) {
    size_t i;

    for (i = 0; i < walk->best.count && i < walk->limit && !gb_render_list_full(&walk->out); i++) {
        walk->wanted = &walk->best.items[i];
        walk->page = (struct gb_page){.after = walk->wanted->id > 0 ? walk->wanted->id - 1 : 0, .limit = 1};
        if (list(walk, err) < 0)
            return -1;
        *ret_place = walk->wanted->place;
    }
    *ret_more = i < walk->best.count;
    return 0;
}

static int fill_sorted(struct gb_walk *walk, gb_list_walk *list, bool *ret_more, struct gb_list_place *ret_place,
                       struct gb_error *err) {
    int r = gb_best_init(&walk->best, (size_t)walk->limit + 1, walk->selection.down, err);

    if (r == 0)
        r = walk_on(walk, list, err);
    if (r == 0) {
        gb_best_end(&walk->best);
        r = fill_ranked(walk, list, ret_more, ret_place, err);
    }
    gb_best_done(&walk->best);
    return r;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

/* Where a page ends. */
struct gb_page_end {
    bool more;
    struct gb_list_place place;
};

static int read_query(const struct gb_http_request *request, const struct gb_list_offer *offer, struct gb_walk *walk,
                      struct gb_error *err) {
    const struct gb_http_text *cursor = gb_http_query(request, "cursor");

    if (gb_route_of(request)->target >= GB_TARGET_SESSION &&
        gb_param_name(request, 0, "session name", &walk->session, err) < 0)
        return -1;
    if (selection_read(request, offer, &walk->selection, err) < 0 || gb_query_limit(request, &walk->limit, err) < 0 ||
        gb_api_prefix(request, &walk->reach, err) < 0)
        return -1;
    walk->left = walk->limit;
    return cursor ? gb_list_cursor_parse(&walk->selection, cursor->s, cursor->len, &walk->after, err) : 0;
}

static int fill(struct gb_walk *walk, gb_list_walk *list, struct gb_page_end *ret, struct gb_error *err) {
    gb_render_list_open(&walk->out);
    return walk->selection.sorted ? fill_sorted(walk, list, &ret->more, &ret->place, err)
                                  : fill_by_age(walk, list, &ret->more, &ret->place, err);
}

static enum gb_step reply(const struct gb_http_request *request, struct gb_walk *walk, const struct gb_page_end *end,
                          struct gb_http_response *response, struct gb_error *err) {
    char cursor[GB_LIST_CURSOR_SIZE];

    return gb_list_reply(request, &walk->out,
                         end->more ? gb_list_cursor_text(&walk->selection, &end->place, cursor) : NULL, response, err);
}

/* A page for which any number of items may be looked at. */
struct job {
    struct gb_deferred deferred;
    struct gb_walk walk;
    gb_list_walk *list;
    struct gb_page_end end;
};

static struct job *job_of(struct gb_deferred *deferred) {
    return gb_container_of(deferred, struct job, deferred);
}

static int make_later(struct gb_deferred *deferred, struct gb_error *err) {
    struct job *job = job_of(deferred);

    return fill(&job->walk, job->list, &job->end, err);
}

static enum gb_step reply_later(struct gb_deferred *deferred, struct gb_http_request *request,
                                struct gb_http_response *response, struct gb_error *err) {
    struct job *job = job_of(deferred);

    return reply(request, &job->walk, &job->end, response, err);
}

static void release(struct gb_deferred *deferred) {
    struct job *job = job_of(deferred);

    gb_json_done(&job->walk.out);
    free(job);
}

enum gb_step gb_reply_page(struct gb_http_request *request, struct gb_http_response *response,
                           const struct gb_list_offer *offer, gb_list_walk *list, struct gb_error *err) {
    struct gb_walk walk = {.api = gb_api_of(request)};
    struct gb_page_end end = {.more = false};
    struct job *job;

    if (read_query(request, offer, &walk, err) < 0)
        return GB_STEP_ERROR;
    if (!walk.selection.sorted && !filters(&walk)) {
        if (fill(&walk, list, &end, err) == 0)
            return reply(request, &walk, &end, response, err);
        gb_json_done(&walk.out);
        return GB_STEP_ERROR;
    }
    job = malloc(sizeof(*job));
    if (!job) {
        gb_error_memory(err, "request");
        return GB_STEP_ERROR;
    }
    *job = (struct job){
        .deferred = {.make = make_later, .reply = reply_later, .release = release}, .walk = walk, .list = list};
    return gb_deferred_start(request, &job->deferred);
}

/* --- long reports ------------------------------------------------------------------------------------------------- */

struct report_job {
    struct gb_deferred deferred;
    gb_deferred_report_make *make;
    struct gb_deferred_report report;
};

static struct report_job *report_job_of(struct gb_deferred *deferred) {
    return gb_container_of(deferred, struct report_job, deferred);
}

static int make(struct gb_deferred *deferred, struct gb_error *err) {
    struct report_job *job = report_job_of(deferred);

    return job->make(&job->report, err);
}

static void report_release(struct gb_deferred *deferred) {
    struct report_job *job = report_job_of(deferred);

    atomic_fetch_sub(&job->report.api->reports, 1);
    free(job->report.body);
    free(job);
}

static enum gb_step report_reply(struct gb_deferred *deferred, struct gb_http_request *request,
                                 struct gb_http_response *response, struct gb_error *err) {
    struct gb_deferred_report *report = &report_job_of(deferred)->report;

    gb_http_response_take(response, report->body, report->len);
    report->body = NULL;
    if (report->next_cursor[0] != '\0' && gb_list_link(request, "cursor", report->next_cursor, response, err) < 0)
        return GB_STEP_ERROR;
    if (gb_http_response_header(response, err, "Content-Type", "%s", report->content_type) < 0 ||
        gb_http_response_header(response, err, "Cache-Control", "no-store") < 0 ||
        gb_http_response_header(response, err, "Vary", "Accept") < 0)
        return GB_STEP_ERROR;
    return GB_STEP_REPLY;
}

enum gb_step gb_deferred_report_start(struct gb_http_request *request, gb_deferred_report_make *makes,
                                      const struct gb_deferred_report *params, struct gb_error *err) {
    struct gb_api *api = gb_api_of(request);
    struct report_job *job = NULL;

    if (atomic_fetch_add(&api->reports, 1) >= GB_DEFERRED_REPORTS_MAX)
        gb_error_set(err, GB_ERR_SATURATED, "%d answers of this kind are being made; try again later",
                     GB_DEFERRED_REPORTS_MAX);
    else if (!(job = malloc(sizeof(*job))))
        gb_error_memory(err, "request");
    if (!job) {
        atomic_fetch_sub(&api->reports, 1);
        return GB_STEP_ERROR;
    }
    *job = (struct report_job){
        .deferred = {.make = make, .reply = report_reply, .release = report_release}, .make = makes, .report = *params};
    job->report.api = api;
    return gb_deferred_start(request, &job->deferred);
}
