/* What is asked of the session's owner when all that it has is here. */
#include <stdio.h>

#include "move/internal.h"

static json_t *hand(struct gb_arrival *arrival, json_t *body, bool *ret_answered, struct gb_error *err) {
    char path[64 + GB_NAME_MAX];

    snprintf(path, sizeof(path), "/v1/fleet/sessions/%s/handover", arrival->session.s);
    return gb_arrival_post(arrival, path, body, ret_answered, err);
}

static int read_freeze(const struct gb_arrival *arrival, json_t *root, struct gb_move_freeze *ret,
                       struct gb_error *err) {
    const json_t *number = json_object_get(root, "freeze");

    if (!root)
        return -1;
    if (json_is_integer(number))
        ret->number = (uint64_t)json_integer_value(number);
    ret->quiet = json_is_true(json_object_get(root, "quiet"));
    json_decref(root);
    if (ret->number > 0)
        return 0;
    return gb_error_set(err, GB_ERR_SOURCE_REFUSED, "the answer of the node \"%s\" cannot be read",
                        arrival->owner.name.s);
}

int gb_move_freeze(struct gb_arrival *arrival, struct gb_move_freeze *ret, struct gb_error *err) {
    json_t *body = json_pack("{s:s, s:I}", "step", "freeze", "epoch", (json_int_t)arrival->there.epoch);
    bool answered;

    *ret = (struct gb_move_freeze){0};
    return read_freeze(arrival, hand(arrival, body, &answered, err), ret, err);
}

static json_t *of_freeze(const char *step, const struct gb_move_freeze *freeze) {
    return json_pack("{s:s, s:I}", "step", step, "freeze", (json_int_t)freeze->number);
}

int gb_move_look_frozen(struct gb_arrival *arrival, struct gb_move_freeze *freeze, struct gb_error *err) {
    bool answered;

    return read_freeze(arrival, hand(arrival, of_freeze("look", freeze), &answered, err), freeze, err);
}

void gb_move_thaw(struct gb_arrival *arrival, const struct gb_move_freeze *freeze) {
    bool answered;

    json_decref(hand(arrival, of_freeze("thaw", freeze), &answered, NULL));
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

int gb_move_give(struct gb_arrival *arrival, const struct gb_move_freeze *freeze, struct gb_error *err) {
    json_t *body = json_pack("{s:s, s:I, s:s, s:s}", "step", "give", "freeze", (json_int_t)freeze->number, "to",
                             arrival->config.node.s, "claim", arrival->claim);
    struct gb_error why = GB_ERROR_INIT;
    bool answered;
    json_t *root = hand(arrival, body, &answered, &why);

    json_decref(root);
    if (root)
        return 1;
    return answered && decides(why.code) ? gb_error_move(err, &why) : 0;
}

void gb_move_tell_arrived(struct gb_arrival *arrival) {
    json_t *body = json_pack("{s:s, s:s}", "step", "arrived", "claim", arrival->claim);
    bool answered;

    json_decref(hand(arrival, body, &answered, NULL));
}
