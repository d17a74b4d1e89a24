#include "base/text.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct gb_text {
    atomic_uint refs;
    char s[];
};

struct gb_text *gb_text_new(const char *text, size_t len) {
    struct gb_text *t = malloc(sizeof(*t) + len + 1);

    if (!t)
        return NULL;
    atomic_init(&t->refs, 1);
    memcpy(t->s, text, len);
    t->s[len] = '\0';
    return t;
}

struct gb_text *gb_text_ref(struct gb_text *text) {
    if (text)
        atomic_fetch_add(&text->refs, 1);
    return text;
}

void gb_text_unref(struct gb_text *text) {
    if (text && atomic_fetch_sub(&text->refs, 1) == 1)
        free(text);
}

void gb_text_set(struct gb_text **at, struct gb_text *text) {
    struct gb_text *old = *at;

    *at = gb_text_ref(text);
    gb_text_unref(old);
}

const char *gb_text_s(const struct gb_text *text) {
    return text ? text->s : "";
}
