/* What is asked of the node that has the session. It answers in the words of the interface. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "move/internal.h"

#define PAGE_QUERY "limit=200"

/* --- requests ----------------------------------------------------------------------------------------------------- */

/* "BASE/PATH?QUERY&ticket=..." */
static int write_url(struct gb_move *move, const char *method, const char *path, const char *query,
                     struct gb_fleet_call *call, struct gb_error *err) {
    char ticket[GB_FLEET_TICKET_SIZE] = "";
    int n;

    if (move->who[0] != '\0' &&
        gb_fleet_ticket_make(move->fleet, method, path, query, &move->owner.name, move->who, ticket, err) < 0)
        return -1;
    n = snprintf(call->url, sizeof(call->url), "%s%s%s%s%s%s", move->base, path, query[0] || ticket[0] ? "?" : "",
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

/* What the owner says is the error, if it is one of the interface. */
static int refused(const struct gb_move *move, const struct gb_fleet_call *call, const json_t *problem,
                   struct gb_error *err) {
    enum gb_code code = code_of(json_string_value(json_object_get(problem, "code")));
    const char *detail = json_string_value(json_object_get(problem, "detail"));

    if (code == GB_OK || !detail)
        return gb_error_set(err, GB_ERR_SOURCE_REFUSED, "the node \"%s\" answered %d, and does not say why",
                            move->owner.name.s, call->status);
    return gb_error_set(err, code, "node \"%s\": %.400s", move->owner.name.s, detail);
}

/* NULL with err; *ret_answered: the owner has refused. */
static json_t *ask(struct gb_move *move, const char *method, const char *path, const char *query, char *body,
                   bool *ret_answered, struct gb_error *err) {
    struct gb_fleet_call call = {.method = method, .body = body};
    json_t *root = NULL;

    *ret_answered = false;
    if (write_url(move, method, path, query, &call, err) < 0 || gb_move_request(move, &call, err) < 0)
        return NULL;
    *ret_answered = true;
    root = json_loadb(call.answer ? call.answer : "", call.bytes, JSON_REJECT_DUPLICATES, NULL);
    if (call.status != 200) {
        refused(move, &call, root, err);
        json_decref(root);
        root = NULL;
    } else if (!json_is_object(root)) {
        gb_error_set(err, GB_ERR_SOURCE_REFUSED, "the answer of the node \"%s\" cannot be read", move->owner.name.s);
        json_decref(root);
        root = NULL;
    }
    free(call.answer);
    return root;
}

json_t *gb_move_get(struct gb_move *move, const char *path, const char *query, struct gb_error *err) {
    bool answered;

    return ask(move, "GET", path, query, NULL, &answered, err);
}

/* --- lists -------------------------------------------------------------------------------------------------------- */

const char *gb_move_text(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

int gb_move_each(struct gb_move *move, const char *list, gb_move_each_fn *each, struct gb_error *err) {
    char path[64 + GB_NAME_MAX];
    char query[512] = PAGE_QUERY;
    const json_t *item;
    const char *cursor;
    bool more;
    json_t *root;
    size_t i;
    int r = 0;

    snprintf(path, sizeof(path), "/v1/sessions/%s/%s", move->session.s, list);
    do {
        root = gb_move_get(move, path, query, err);
        if (!root)
            return -1;
        json_array_foreach(json_object_get(root, "items"), i, item) {
            r = each(move, item, err);
            if (r < 0)
                break;
        }
        cursor = json_string_value(json_object_get(root, "next_cursor"));
        more = cursor != NULL;
        if (more && (size_t)snprintf(query, sizeof(query), PAGE_QUERY "&cursor=%s", cursor) >= sizeof(query))
            r = gb_error_set(err, GB_ERR_SOURCE_REFUSED, "the list of %s of the node \"%s\" cannot be read", list,
                             move->owner.name.s);
        json_decref(root);
    } while (r == 0 && more);
    return r;
}

/* --- handing over ------------------------------------------------------------------------------------------------- */

/* Takes the body over; NULL: there was no memory for it. */
static json_t *hand(struct gb_move *move, json_t *body, bool *ret_answered, struct gb_error *err) {
    char path[64 + GB_NAME_MAX];
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_t *root = NULL;

    *ret_answered = false;
    snprintf(path, sizeof(path), "/v1/fleet/sessions/%s/handover", move->session.s);
    if (text)
        root = ask(move, "POST", path, "", text, ret_answered, err);
    else
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the move; try again later");
    json_decref(body);
    free(text);
    return root;
}

static int read_freeze(const struct gb_move *move, json_t *root, struct gb_move_freeze *ret, struct gb_error *err) {
    const json_t *number = json_object_get(root, "freeze");

    if (!root)
        return -1;
    if (json_is_integer(number))
        ret->number = (uint64_t)json_integer_value(number);
    ret->quiet = json_is_true(json_object_get(root, "quiet"));
    json_decref(root);
    if (ret->number > 0)
        return 0;
    return gb_error_set(err, GB_ERR_SOURCE_REFUSED, "the answer of the node \"%s\" cannot be read", move->owner.name.s);
}

int gb_move_freeze(struct gb_move *move, struct gb_move_freeze *ret, struct gb_error *err) {
    json_t *body = json_pack("{s:s, s:I}", "step", "freeze", "epoch", (json_int_t)move->there.epoch);
    bool answered;

    *ret = (struct gb_move_freeze){0};
    return read_freeze(move, hand(move, body, &answered, err), ret, err);
}

static json_t *of_freeze(const char *step, const struct gb_move_freeze *freeze) {
    return json_pack("{s:s, s:I}", "step", step, "freeze", (json_int_t)freeze->number);
}

int gb_move_look_frozen(struct gb_move *move, struct gb_move_freeze *freeze, struct gb_error *err) {
    bool answered;

    return read_freeze(move, hand(move, of_freeze("look", freeze), &answered, err), freeze, err);
}

void gb_move_thaw(struct gb_move *move, const struct gb_move_freeze *freeze) {
    bool answered;

    json_decref(hand(move, of_freeze("thaw", freeze), &answered, NULL));
}

/* Any other answer is of a node that is busy, stops, or waits for the directory itself, or of a program between. */
static bool decides(enum gb_code code) {
    switch (code) {
    case GB_ERR_OWNER_UNKNOWN:
    case GB_ERR_SESSION_MOVING:
    case GB_ERR_SUPERSEDED:
    case GB_ERR_NODE_UNREACHABLE:
    case GB_ERR_DIRECTORY_UNAVAILABLE:
    case GB_ERR_MAPPED:
    case GB_ERR_ADOPTED:
    case GB_ERR_BUFFER_BUSY:
    case GB_ERR_INVALID_ARGUMENT:
        return true;
    default:
        return false;
    }
}

int gb_move_give(struct gb_move *move, const struct gb_move_freeze *freeze, struct gb_error *err) {
    json_t *body = json_pack("{s:s, s:I, s:s, s:s}", "step", "give", "freeze", (json_int_t)freeze->number, "to",
                             move->moves->config.node.s, "claim", move->claim);
    struct gb_error why = GB_ERROR_INIT;
    bool answered;
    json_t *root = hand(move, body, &answered, &why);

    json_decref(root);
    if (root)
        return 1;
    return answered && decides(why.code) ? gb_error_move(err, &why) : 0;
}

void gb_move_tell_arrived(struct gb_move *move) {
    json_t *body = json_pack("{s:s, s:s}", "step", "arrived", "claim", move->claim);
    bool answered;

    json_decref(hand(move, body, &answered, NULL));
}
