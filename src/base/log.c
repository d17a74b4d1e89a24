#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

static const char *const level_names[] = {"error", "warning", "info", "debug"};

/* Appends text as the inside of a JSON string; always leaves room for what follows. */
static size_t append_escaped(char *out, size_t at, size_t size, const char *text) {
    for (; *text && at + 16 < size; text++) {
        unsigned char c = (unsigned char)*text;

        if (c == '"' || c == '\\') {
            out[at++] = '\\';
            out[at++] = (char)c;
        } else if (c < 0x20) {
            at += (size_t)snprintf(out + at, size - at, "\\u%04x", c);
        } else {
            out[at++] = (char)c;
        }
    }
    return at;
}

void gb_log(const struct gb_log *log, enum gb_log_level level, const char *event, const char *fmt, ...) {
    char stamp[GB_RFC3339_SIZE];
    char text[3000];
    char line[4096];
    va_list ap;
    size_t n;

    if (level > log->level)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    gb_rfc3339(gb_wall_us(), stamp);
    if (log->json) {
        n = (size_t)snprintf(line, sizeof(line), "{\"time\":\"%s\",\"level\":\"%s\",\"event\":\"%s\",\"message\":\"",
                             stamp, level_names[level], event);
        n = append_escaped(line, n, sizeof(line), text);
        n += (size_t)snprintf(line + n, sizeof(line) - n, "\"}\n");
    } else {
        n = (size_t)snprintf(line, sizeof(line), "%s %-7s %s: %s\n", stamp, level_names[level], event, text);
    }
    /* One write, so that lines of several threads do not mix; a log that cannot be written has nowhere to say so. */
    if (write(log->fd, line, n) < 0)
        return;
}

int gb_log_level_parse(const char *word, enum gb_log_level *ret_level) {
    int i;

    for (i = 0; i < 4; i++) {
        if (strcmp(word, level_names[i]) == 0) {
            *ret_level = (enum gb_log_level)i;
            return 0;
        }
    }
    return -1;
}
