#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/escape.h"

static const char *const level_names[] = {"error", "warning", "info", "debug"};

/* Appends text, which has no control characters, as the inside of a JSON string; always leaves room for what
 * follows. */
static size_t append_quoted(char *out, size_t at, size_t size, const char *text) {
    while (*text) {
        bool marked = *text == '"' || *text == '\\';
        size_t n = gb_utf8_len(text);

        if (at + n + 16 >= size)
            break;
        if (marked)
            out[at++] = '\\';
        memcpy(out + at, text, n);
        at += n;
        text += n;
    }
    return at;
}

void gb_log(const struct gb_log *log, enum gb_log_level level, const char *event, const char *fmt, ...) {
    char stamp[GB_RFC3339_SIZE];
    char said[3000];
    char text[3900];
    char line[4096];
    va_list ap;
    size_t n;

    if (level > log->level)
        return;
    va_start(ap, fmt);
    vsnprintf(said, sizeof(said), fmt, ap);
    va_end(ap);
    /* Here and nowhere else, so that nothing that a client chose reaches a terminal or begins a line. */
    gb_escape(text, sizeof(text), said);
    gb_rfc3339(gb_wall_us(), stamp);
    if (log->json) {
        n = (size_t)snprintf(line, sizeof(line), "{\"time\":\"%s\",\"level\":\"%s\",\"event\":\"%s\",\"message\":\"",
                             stamp, level_names[level], event);
        n = append_quoted(line, n, sizeof(line), text);
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
