#include "cli/progress.h"

#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

#include "cli/out.h"

#define DRAW_S 0.1   /* a line is drawn no more often */
#define RATE_S 0.5   /* the rate is taken over at least so long */
#define RATE_NEW 0.5 /* weight of the newest rate in the one that is shown */

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
        n = snprintf(tail, sizeof tail, "  %s  %.2f GB/s", done, progress->rate / 1e9);
    else if (progress->done >= progress->total)
        n = snprintf(tail, sizeof tail, "  %s  100 %%  %.2f GB/s  in %s", done, progress->rate / 1e9,
                     gb_cli_time_text(now - progress->began, left));
    else
        n = snprintf(tail, sizeof tail, "  %s of %s  %.0f %%  %.2f GB/s  %s left", done,
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

    gb_cli_progress_line(progress, now, columns(progress->out), text, sizeof text);
    fputs("\r\033[K", progress->out);
    gb_cli_put(progress->out, text);
    fflush(progress->out);
    progress->drawn = now;
}

void gb_cli_progress_begin(struct gb_cli_progress *progress, FILE *out, bool on, const char *label) {
    memset(progress, 0, sizeof *progress);
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
