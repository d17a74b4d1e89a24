#include "api/list/page.h"

#include <stdlib.h>
#include <string.h>

#include "api/auth.h"
#include "api/list/link.h"
#include "api/reply/deferred.h"
#include "api/reply/render.h"
#include "api/request/query.h"
#include "api/route.h"
#include "base/container.h"

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

    if (walk->after.name.s[0] == '\0' || gb_list_place_compare(&place, &walk->after, walk->selection.down) > 0)
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
        (!item->buffer || gb_api_has_prefix(&walk->reach, item->buffer)) && gb_selection_has(&walk->selection, item);

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
    return walk->reach.s[0] != '\0' || gb_selection_filters(&walk->selection);
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

/* Without filters the core knows whether something follows, and looks at no more than the page. */
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
    if (gb_selection_read(request, offer, &walk->selection, err) < 0 ||
        gb_query_limit(request, &walk->limit, err) < 0 || gb_api_prefix(request, &walk->reach, err) < 0)
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
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
        return GB_STEP_ERROR;
    }
    *job = (struct job){
        .deferred = {.make = make_later, .reply = reply_later, .release = release}, .walk = walk, .list = list};
    return gb_deferred_start(request, &job->deferred);
}
