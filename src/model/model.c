#include "model/model.h"

#include "model/word.h"

static const char *const head_names[GB_HEAD_COUNT] = {"uninitialized", "host", "device", "synced"};
static const char *const scope_names[GB_SCOPE_COUNT] = {"read", "write", "admin"};

const char *gb_buffer_state_name(enum gb_buffer_state state) {
    switch (state) {
    case GB_BUFFER_READY:
        return "ready";
    case GB_BUFFER_PARTIAL:
        return "partial";
    case GB_BUFFER_LOST:
        return "lost";
    }
    return "unknown";
}

const char *gb_head_name(enum gb_head head) {
    return (unsigned)head < GB_HEAD_COUNT ? head_names[head] : "unknown";
}

int gb_head_parse(const char *name, size_t len, enum gb_head *ret_head, struct gb_error *err) {
    size_t index;

    if (gb_word_parse("head", head_names, GB_HEAD_COUNT, name, len, &index, err) < 0)
        return -1;
    *ret_head = (enum gb_head)index;
    return 0;
}

const char *gb_scope_name(enum gb_scope scope) {
    return (unsigned)scope < GB_SCOPE_COUNT ? scope_names[scope] : "unknown";
}

int gb_scope_parse(const char *name, size_t len, enum gb_scope *ret_scope, struct gb_error *err) {
    size_t index;

    if (gb_word_parse("scope", scope_names, GB_SCOPE_COUNT, name, len, &index, err) < 0)
        return -1;
    *ret_scope = (enum gb_scope)index;
    return 0;
}
