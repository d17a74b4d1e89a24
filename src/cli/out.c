/* What the user sees: tables, details, sizes, JSON and the line of progress. Text of the daemon passes gb_cli_put()
 * or a cell of a table, so that no control character of it reaches a terminal. All commands call it. */
#include "cli/out.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

#define PATH_MAX_LENGTH 512
#define DUMP (JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15)) /* 0.1 stays 0.1 */
#define DRAW_S 0.1                                                      /* a line is drawn no more often */
#define RATE_S 0.5                                                      /* the rate is taken over at least so long */
#define RATE_NEW 0.5 /* weight of the newest rate in the one that is shown */

json_t *gb_cli_at(json_t *object, const char *path) {
    json_t *at = object;

    while (at && *path != '\0') {
        size_t n = strcspn(path, ".");

        at = json_object_getn(at, path, n);
        path += n + (path[n] == '.');
    }
    return at;
}

double gb_cli_number(json_t *object, const char *path) {
    return json_number_value(gb_cli_at(object, path));
}

const char *gb_cli_text(json_t *object, const char *path) {
    const char *text = json_string_value(gb_cli_at(object, path));

    return text ? text : "";
}

char *gb_cli_bytes_text(uint64_t bytes, char *text) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    unsigned unit = 0;

    while (value >= 1023.95 && unit < 6) {
        value /= 1024;
        unit++;
    }
    snprintf(text, 24, "%.*f %s", unit > 0 ? 1 : 0, value, units[unit]);
    return text;
}

char *gb_cli_time_text(double seconds, char *text) {
    unsigned whole;

    if (!(seconds >= 0) || seconds > 1e6)
        snprintf(text, 24, "?");
    else if (seconds < 60)
        snprintf(text, 24, "%.*f s", seconds < 10 ? 1 : 0, seconds);
    else {
        whole = (unsigned)(seconds + 0.5);
        if (whole >= 3600)
            snprintf(text, 24, "%u:%02u:%02u", whole / 3600, whole / 60 % 60, whole % 60);
        else
            snprintf(text, 24, "%u:%02u", whole / 60, whole % 60);
    }
    return text;
}

/* Copies text into a cell; what does not fit becomes three dots. */
static void cell_text(char *cell, const char *text) {
    if (strlen(text) < GB_CLI_CELL)
        strcpy(cell, text);
    else
        snprintf(cell, GB_CLI_CELL, "%.*s...", GB_CLI_CELL - 4, text);
}

static void cell_shape(json_t *shape, char *cell) {
    char text[32 * 20] = "";
    size_t at = 0;
    size_t i;

    for (i = 0; i < json_array_size(shape) && at < sizeof(text) - 24; i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%lld", i > 0 ? "x" : "",
                               (long long)json_integer_value(json_array_get(shape, i)));
    cell_text(cell, json_array_size(shape) > 0 ? text : "scalar");
}

static void cell_time(const char *stamp, char *cell) {
    snprintf(cell, GB_CLI_CELL, "%.*s", 19, stamp);
    if (strlen(cell) == 19 && cell[10] == 'T')
        cell[10] = ' ';
}

static void cell_any(json_t *value, char *cell) {
    char *text;

    if (json_is_string(value)) {
        cell_text(cell, json_string_value(value));
        return;
    }
    text = json_dumps(value, DUMP);
    cell_text(cell, text ? text : "");
    free(text);
}

void gb_cli_cell(json_t *item, const struct gb_cli_column *column, char *text) {
    json_t *value = gb_cli_at(item, column->path);

    text[0] = '\0';
    if (!value || json_is_null(value))
        strcpy(text, "-");
    else if (column->form == GB_CLI_FORM_BYTES && json_is_integer(value))
        gb_cli_bytes_text((uint64_t)json_integer_value(value), text);
    else if (column->form == GB_CLI_FORM_REAL && json_is_number(value))
        snprintf(text, GB_CLI_CELL, "%.3f", json_number_value(value));
    else if (column->form == GB_CLI_FORM_SHAPE && json_is_array(value))
        cell_shape(value, text);
    else if (column->form == GB_CLI_FORM_TIME && json_is_string(value))
        cell_time(json_string_value(value), text);
    else if (column->form == GB_CLI_FORM_FLAG)
        strcpy(text, json_is_true(value) ? "yes" : "-");
    else
        cell_any(value, text);
}

/* How many bytes of a control character begin here. Those from U+0080 to U+009F have two in UTF-8, and one of them does
 * the same as ESC [. */
static int control(const char *text) {
    const unsigned char *at = (const unsigned char *)text;

    if (at[0] < ' ' || at[0] == 0x7f)
        return 1;
    return at[0] == 0xc2 && at[1] >= 0x80 && at[1] <= 0x9f ? 2 : 0;
}

void gb_cli_put(FILE *out, const char *text) {
    while (*text != '\0') {
        int n = control(text);

        fprintf(out, "%.*s", n > 0 ? n : 1, n > 0 ? "??" : text);
        text += n > 0 ? n : 1;
    }
}

static void put_cell(FILE *out, const char *text, enum gb_cli_form form, size_t width, bool last) {
    size_t pad = width > strlen(text) ? width - strlen(text) : 0;
    bool right = form == GB_CLI_FORM_BYTES || form == GB_CLI_FORM_COUNT || form == GB_CLI_FORM_REAL;

    if (right)
        fprintf(out, "%*s", (int)pad, "");
    gb_cli_put(out, text);
    if (!last)
        fprintf(out, "%*s", (int)(right ? 0 : pad) + 2, "");
}

void gb_cli_table(FILE *out, const struct gb_cli_column *columns, size_t count, json_t *items) {
    size_t widths[24] = {0}; /* no table has more columns */
    char text[GB_CLI_CELL];
    size_t row;
    size_t i;
    size_t n;

    if (count > sizeof(widths) / sizeof(widths[0]))
        count = sizeof(widths) / sizeof(widths[0]);
    for (i = 0; i < count; i++) {
        widths[i] = strlen(columns[i].title);
        for (row = 0; row < json_array_size(items); row++) {
            gb_cli_cell(json_array_get(items, row), &columns[i], text);
            if (strlen(text) > widths[i])
                widths[i] = strlen(text);
        }
        for (n = 0; n <= strlen(columns[i].title); n++)
            text[n] = (char)toupper((unsigned char)columns[i].title[n]);
        put_cell(out, text, columns[i].form, widths[i], i + 1 == count);
    }
    putc('\n', out);
    for (row = 0; row < json_array_size(items); row++) {
        for (i = 0; i < count; i++) {
            gb_cli_cell(json_array_get(items, row), &columns[i], text);
            put_cell(out, text, columns[i].form, widths[i], i + 1 == count);
        }
        putc('\n', out);
    }
}

static bool ends_in_bytes(const char *key) {
    size_t n = strlen(key);

    return n >= 5 && strcmp(key + n - 5, "bytes") == 0;
}

static void put_value(FILE *out, json_t *value) {
    char *text = json_is_string(value) ? NULL : json_dumps(value, DUMP);

    gb_cli_put(out, json_is_string(value) ? json_string_value(value) : text ? text : "");
    free(text);
}

/* One member; objects go deeper, and so do arrays of objects. */
static void put_detail(FILE *out, const char *path, json_t *value) {
    char deeper[PATH_MAX_LENGTH];
    char text[24];
    const char *key;
    json_t *member;
    size_t i;

    if (json_is_object(value) && json_object_size(value) > 0) {
        json_object_foreach(value, key, member) {
            snprintf(deeper, sizeof(deeper), "%s%s%s", path, path[0] ? "." : "", key);
            put_detail(out, deeper, member);
        }
        return;
    }
    if (json_is_array(value) && json_is_object(json_array_get(value, 0))) {
        json_array_foreach(value, i, member) {
            snprintf(deeper, sizeof(deeper), "%s[%zu]", path, i);
            put_detail(out, deeper, member);
        }
        return;
    }
    gb_cli_put(out, path);
    fputs(": ", out);
    put_value(out, value);
    if (json_is_integer(value) && ends_in_bytes(path) && json_integer_value(value) >= 1024)
        fprintf(out, " (%s)", gb_cli_bytes_text((uint64_t)json_integer_value(value), text));
    putc('\n', out);
}

void gb_cli_details(FILE *out, json_t *object) {
    put_detail(out, "", object);
}

void gb_cli_json_text(FILE *out, const char *text) {
    while (*text != '\0') {
        int n = control(text);

        /* Within strings, where they may stand escaped. JSON has no other place for them. */
        if (n > 0)
            fprintf(out, "\\u%04x", (unsigned)(unsigned char)text[n - 1]);
        else
            putc(*text, out);
        text += n > 0 ? n : 1;
    }
    putc('\n', out);
}

void gb_cli_json(FILE *out, json_t *value) {
    char *text = json_dumps(value, DUMP);

    gb_cli_json_text(out, text ? text : "null");
    free(text);
}

/* --- progress: one line on standard error, during a transfer --------------------------------------------------- */

double gb_cli_now(void) {
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static unsigned columns(FILE *out) {
    struct winsize size = {0};

    return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void gb_cli_progress_line(const struct gb_cli_progress *progress, double now, unsigned width, char *text, size_t size) {
    char done[24];
    char total[24];
    char left[24] = "";
    char tail[112];
    int n;

    gb_cli_bytes_text(progress->done, done);
    if (progress->total == 0)
        n = snprintf(tail, sizeof(tail), "  %s  %.2f GB/s", done, progress->rate / 1e9);
    else if (progress->done >= progress->total)
        n = snprintf(tail, sizeof(tail), "  %s  100 %%  %.2f GB/s  in %s", done, progress->rate / 1e9,
                     gb_cli_time_text(now - progress->began, left));
    else
        n = snprintf(tail, sizeof(tail), "  %s of %s  %.0f %%  %.2f GB/s  %s left", done,
                     gb_cli_bytes_text(progress->total, total),
                     100.0 * (double)progress->done / (double)progress->total, progress->rate / 1e9,
                     gb_cli_time_text(
                         progress->rate > 0 ? (double)(progress->total - progress->done) / progress->rate : -1, left));
    if ((unsigned)n >= width)
        snprintf(text, size, "%.*s", (int)width - 1, tail + 2);
    else
        snprintf(text, size, "%.*s%s", (int)width - 1 - n, progress->label, tail);
}

static void draw(struct gb_cli_progress *progress, double now) {
    char text[512];

    gb_cli_progress_line(progress, now, columns(progress->out), text, sizeof(text));
    fputs("\r\033[K", progress->out);
    gb_cli_put(progress->out, text);
    fflush(progress->out);
    progress->drawn = now;
}

void gb_cli_progress_begin(struct gb_cli_progress *progress, FILE *out, bool on, const char *label) {
    memset(progress, 0, sizeof(*progress));
    progress->out = out;
    progress->on = on;
    progress->label = label;
    progress->began = progress->rate_at = gb_cli_now();
}

static void take_rate(struct gb_cli_progress *progress, double now) {
    double over = now - progress->rate_at;
    double rate;

    if (over < RATE_S)
        return;
    rate = (double)(progress->done - progress->rate_done) / over;
    progress->rate = progress->rate_done > 0 ? RATE_NEW * rate + (1 - RATE_NEW) * progress->rate : rate;
    progress->rate_at = now;
    progress->rate_done = progress->done;
}

void gb_cli_progress_move(struct gb_cli_progress *progress, uint64_t done, uint64_t total) {
    double now;

    if (!progress->on || done < progress->done)
        return;
    now = gb_cli_now();
    progress->done = done;
    progress->total = total;
    take_rate(progress, now);
    if (now - progress->drawn >= DRAW_S)
        draw(progress, now);
}

void gb_cli_progress_end(struct gb_cli_progress *progress, bool good) {
    double now = gb_cli_now();

    if (!progress->on)
        return;
    if (good && now > progress->began) {
        progress->total = progress->done;
        progress->rate = (double)progress->done / (now - progress->began);
        draw(progress, now);
        fputs("\n", progress->out);
    } else if (progress->drawn > 0) {
        fputs("\r\033[K", progress->out);
    }
    fflush(progress->out);
    progress->on = false;
}
