#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/escape.h"
#include "base/json_writer.h"

static const char *const level_names[] = {"error", "warning", "info", "debug"};

/* Writes the line as JSON into a buffer that has room for all but a long text, which is cut. Returns its length. */
static size_t write_json(char *line, size_t size, enum gb_log_level level, const char *event, const char *stamp,
                         const char *text) {
    struct gb_json_writer out = gb_json_fixed(line, size);

    gb_json_open(&out, NULL, '{');
    gb_json_put_string(&out, "time", stamp);
    gb_json_put_string(&out, "level", level_names[level]);
    gb_json_put_string(&out, "event", event);
    gb_json_put_untrusted(&out, "message", text, size - out.used - sizeof(",\"message\":\"\"}\n"));
    gb_json_close(&out, '}');
    gb_json_end(&out);
    return out.used;
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
    if (log->json)
        n = write_json(line, sizeof(line), level, event, stamp, text);
    else
        n = (size_t)snprintf(line, sizeof(line), "%s %-7s %s: %s\n", stamp, level_names[level], event, text);
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
