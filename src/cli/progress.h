/* One line on standard error, while a transfer goes on and only on a terminal: done, rate, time left. */
#ifndef GB_CLI_PROGRESS_H
#define GB_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

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

/* The line without its escapes, cut to width columns, in text[size]; also what tests look at. */
void gb_cli_progress_line(const struct gb_cli_progress *progress, double now, unsigned width, char *text, size_t size);

#endif
