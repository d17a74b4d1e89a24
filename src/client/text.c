#include "client/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gpubuf/gpubuf.h>

void gbc_text_done(struct gbc_text *text) {
    free(text->data);
    *text = (struct gbc_text){.data = NULL};
}

void gbc_text_clear(struct gbc_text *text) {
    text->bytes = 0;
    text->failed = false;
    if (text->data)
        text->data[0] = '\0';
}

static bool reserve(struct gbc_text *text, size_t bytes) {
    size_t room = text->room ? text->room : 256;
    char *data;

    if (bytes < text->room - text->bytes && text->room > 0)
        return true;
    while (room - text->bytes <= bytes) {
        if (room > SIZE_MAX / 2)
            return false;
        room *= 2;
    }
    data = realloc(text->data, room);
    if (!data)
        return false;
    text->data = data;
    text->room = room;
    return true;
}

void gbc_text_add(struct gbc_text *text, const void *data, size_t bytes) {
    if (text->failed || !reserve(text, bytes)) {
        text->failed = true;
        return;
    }
    if (bytes > 0)
        memcpy(text->data + text->bytes, data, bytes);
    text->bytes += bytes;
    text->data[text->bytes] = '\0';
}

void gbc_text_addf(struct gbc_text *text, const char *fmt, ...) {
    va_list ap;
    char *made;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&made, fmt, ap);
    va_end(ap);
    if (n < 0) {
        text->failed = true;
        return;
    }
    gbc_text_add(text, made, (size_t)n);
    free(made);
}

static bool unreserved(unsigned char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || strchr("-._~,:", c) != NULL;
}

void gbc_text_escape(struct gbc_text *text, const char *plain) {
    for (; *plain != '\0'; plain++) {
        unsigned char c = (unsigned char)*plain;

        if (unreserved(c))
            gbc_text_add(text, plain, 1);
        else
            gbc_text_addf(text, "%%%02X", c);
    }
}

void gbc_copy(char *out, size_t size, const char *plain) {
    size_t n = plain ? strnlen(plain, size - 1) : 0;

    if (n > 0)
        memcpy(out, plain, n);
    out[n] = '\0';
}

int gpubuf_escape(const char *text, char *ret, size_t size) {
    struct gbc_text out = {.data = NULL};
    int r = -1;

    gbc_text_escape(&out, text);
    if (!out.failed && out.bytes < size) {
        gbc_copy(ret, size, out.data);
        r = 0;
    }
    gbc_text_done(&out);
    return r;
}
