/* What is asked of the node that has the session. It answers in the words of the interface. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrival/arrival.h"

#define PAGE_QUERY "limit=200"

/* --- where it is -------------------------------------------------------------------------------------------------- */

const char *gb_arrival_url(const struct gb_arrival_config *config, const struct gb_fleet_node *node) {
    const char *url = NULL;
    size_t i;

    for (i = 0; i < config->url_count && !url; i++)
        url = gb_fleet_url_on(node, &config->urls[i].network);
    /* One that none can reach is in no network that has a name, and may reach any. */
    if (config->url_count == 0 && node->url_count > 0)
        url = node->urls[0].url;
    return url;
}

int gb_arrival_locate(struct gb_arrival *arrival, struct gb_error *err) {
    struct gb_fleet_find find;
    const char *url;

    if (gb_arrival_find(arrival, &find, err) < 0)
        return -1;
    arrival->there = find.session;
    arrival->owner = find.owner;
    arrival->absent_s = find.absent_s;
    if (gb_name_equal(&find.session.node, &arrival->config.node))
        return 1;
    url = gb_arrival_url(&arrival->config, &find.owner);
    snprintf(arrival->base, sizeof(arrival->base), "%s", url ? url : "");
    if (!find.owner.alive)
        return gb_error_set(err, GB_ERR_OWNER_ABSENT, "the node \"%s\", which has the session \"%s\", is not there",
                            find.session.node.s, arrival->session.s);
    if (!url)
        return gb_error_set(err, GB_ERR_NODE_UNREACHABLE,
                            "the node \"%s\", which has the session \"%s\", is in no network of this one",
                            find.session.node.s, arrival->session.s);
    return gb_pull_origin_read(url, arrival->origin, err);
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

/* "BASE/PATH?QUERY&ticket=..." */
static int write_url(struct gb_arrival *arrival, const char *method, const char *path, const char *query,
                     struct gb_fleet_call *call, struct gb_error *err) {
    char ticket[GB_FLEET_TICKET_SIZE] = "";
    int n;

    if (arrival->who[0] != '\0' && gb_fleet_ticket_make(arrival->config.fleet, method, path, query,
                                                        &arrival->owner.name, arrival->who, ticket, err) < 0)
        return -1;
    n = snprintf(call->url, sizeof(call->url), "%s%s%s%s%s%s", arrival->base, path, query[0] || ticket[0] ? "?" : "",
                 query,
                 !ticket[0] ? ""
                 : query[0] ? "&ticket="
                            : "ticket=",
                 ticket);
    return n > 0 && (size_t)n < sizeof(call->url)
               ? 0
               : gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the URL of the session's owner is too long");
}

static enum gb_code code_of(const char *slug) {
    int code;

    for (code = GB_OK + 1; slug && code < GB_CODE_COUNT; code++)
        if (strcmp(gb_code_slug((enum gb_code)code), slug) == 0)
            return (enum gb_code)code;
    return GB_OK;
}

/* What the owner says is the error, if it is one of the interface. A redirect means that the node has given the session
   away since the directory was read, or that the directory was restored to an older state. */
static int refused(const struct gb_arrival *arrival, const struct gb_fleet_call *call, const json_t *problem,
                   struct gb_error *err) {
    enum gb_code code = code_of(json_string_value(json_object_get(problem, "code")));
    const char *detail = json_string_value(json_object_get(problem, "detail"));

    if (call->status >= 300 && call->status < 400)
        return gb_error_set(err, GB_ERR_OWNER_UNKNOWN,
                            "the directory names the node \"%s\", and that node names another one; try again",
                            arrival->owner.name.s);
    if (code == GB_OK || !detail)
        return gb_error_set(err, GB_ERR_SOURCE_REFUSED, "the node \"%s\" answered %d, and does not say why",
                            arrival->owner.name.s, call->status);
    return gb_error_set(err, code, "node \"%s\": %.400s", arrival->owner.name.s, detail);
}

/* NULL with err; *ret_answered: the owner has refused. */
static json_t *ask(struct gb_arrival *arrival, const char *method, const char *path, const char *query, char *body,
                   bool *ret_answered, struct gb_error *err) {
    struct gb_fleet_call call = {.method = method, .body = body};
    json_t *root = NULL;

    *ret_answered = false;
    if (write_url(arrival, method, path, query, &call, err) < 0 || gb_arrival_request(arrival, &call, err) < 0)
        return NULL;
    *ret_answered = true;
    root = json_loadb(call.answer ? call.answer : "", call.bytes, JSON_REJECT_DUPLICATES, NULL);
    if (call.status != 200) {
        refused(arrival, &call, root, err);
        json_decref(root);
        root = NULL;
    } else if (!json_is_object(root)) {
        gb_error_set(err, GB_ERR_SOURCE_REFUSED, "the answer of the node \"%s\" cannot be read", arrival->owner.name.s);
        json_decref(root);
        root = NULL;
    }
    free(call.answer);
    return root;
}

json_t *gb_arrival_get(struct gb_arrival *arrival, const char *path, const char *query, struct gb_error *err) {
    bool answered;

    return ask(arrival, "GET", path, query, NULL, &answered, err);
}

json_t *gb_arrival_post(struct gb_arrival *arrival, const char *path, json_t *body, bool *ret_answered,
                        struct gb_error *err) {
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_t *root = NULL;

    *ret_answered = false;
    if (text)
        root = ask(arrival, "POST", path, "", text, ret_answered, err);
    else
        gb_error_set(err, GB_ERR_SATURATED, "no memory to bring the session; try again later");
    json_decref(body);
    free(text);
    return root;
}

/* --- lists -------------------------------------------------------------------------------------------------------- */

const char *gb_arrival_text(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

int gb_arrival_each(struct gb_arrival *arrival, const char *list, gb_arrival_each_fn *each, struct gb_error *err) {
    char path[64 + GB_NAME_MAX];
    char query[512] = PAGE_QUERY;
    const json_t *item;
    const char *cursor;
    bool more;
    json_t *root;
    size_t i;
    int r = 0;

    snprintf(path, sizeof(path), "/v1/sessions/%s/%s", arrival->session.s, list);
    do {
        root = gb_arrival_get(arrival, path, query, err);
        if (!root)
            return -1;
        json_array_foreach(json_object_get(root, "items"), i, item) {
            r = each(arrival, item, err);
            if (r < 0)
                break;
        }
        cursor = json_string_value(json_object_get(root, "next_cursor"));
        more = cursor != NULL;
        if (more && (size_t)snprintf(query, sizeof(query), PAGE_QUERY "&cursor=%s", cursor) >= sizeof(query))
            r = gb_error_set(err, GB_ERR_SOURCE_REFUSED, "the list of %s of the node \"%s\" cannot be read", list,
                             arrival->owner.name.s);
        json_decref(root);
    } while (r == 0 && more);
    return r;
}
