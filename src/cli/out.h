/* What the user sees: tables, details, sizes. Bytes that a terminal would take for commands are shown as '?'. */
#ifndef GB_CLI_OUT_H
#define GB_CLI_OUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum gb_cli_form {
    GB_CLI_FORM_TEXT,
    GB_CLI_FORM_BYTES, /* 1.5 MiB */
    GB_CLI_FORM_COUNT,
    GB_CLI_FORM_REAL,  /* with three digits behind the point */
    GB_CLI_FORM_SHAPE, /* 3x4 */
    GB_CLI_FORM_TIME,  /* 2026-11-21 13:37:51 */
    GB_CLI_FORM_FLAG   /* yes or nothing */
};

struct gb_cli_column {
    const char *title;
    const char *path; /* members, separated by dots: "device.index" */
    enum gb_cli_form form;
};

#define GB_CLI_CELL 160 /* longest cell, with its NUL; longer ones end in ... */

/* The member at a path of an object, or NULL. Borrowed. */
json_t *gb_cli_at(json_t *object, const char *path);

/* The same as a number; 0 without it. */
double gb_cli_number(json_t *object, const char *path);
const char *gb_cli_text(json_t *object, const char *path); /* "" without it */

/* "1.5 MiB" in text[24]. Returns text. */
char *gb_cli_bytes_text(uint64_t bytes, char *text);
/* Seconds as "1.2 s", "3:20" or "1:02:03" in text[24]. */
char *gb_cli_time_text(double seconds, char *text);

void gb_cli_cell(json_t *item, const struct gb_cli_column *column, char *text);

/* A heading and a line for each item of the array; columns as wide as they must be, numbers to the right. */
void gb_cli_table(FILE *out, const struct gb_cli_column *columns, size_t count, json_t *items);

/* A line "path: value" for each member of the object and of those within it. */
void gb_cli_details(FILE *out, json_t *object);

/* One JSON document and a newline. */
void gb_cli_json(FILE *out, json_t *value);
/* The same of JSON that stands there as text. */
void gb_cli_json_text(FILE *out, const char *text);

/* Text without control characters. */
void gb_cli_put(FILE *out, const char *text);

/* --- progress: one line on standard error, during a transfer and only on a terminal ------------------------ */

struct gb_cli_progress {
    FILE *out;
    bool on;
    const char *label; /* borrowed */
    uint64_t done;
    uint64_t total; /* 0: unknown */
    double began;   /* seconds of the monotonic clock */
    double drawn;   /* when the line was drawn last; 0: never */
    double rate;    /* bytes a second, recently */
    double rate_at; /* when it was taken, and of how many bytes */
    uint64_t rate_done;
};

double gb_cli_now(void);

void gb_cli_progress_begin(struct gb_cli_progress *progress, FILE *out, bool on, const char *label);
void gb_cli_progress_move(struct gb_cli_progress *progress, uint64_t done, uint64_t total);
/* The last line stays when all went well, and is taken away otherwise. */
void gb_cli_progress_end(struct gb_cli_progress *progress, bool good);

/* The line without its escapes, cut to width columns, in text[size]; also for tests. */
void gb_cli_progress_line(const struct gb_cli_progress *progress, double now, unsigned width, char *text, size_t size);

#endif
