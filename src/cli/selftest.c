/* selftest: what copies, allocations and pinning cost on the daemon's machine. */
#include <string.h>

#include "cli/cli.h"

#define WAIT_S 60 /* the longest a request waits, and about the longest a selftest takes */

/* A size as the table's titles have it; those of a known puzzle are no powers of two. */
static void size_text(double bytes, char ret[24]) {
    if (bytes >= 1 << 20 && (json_int_t)bytes % (1 << 20) == 0)
        snprintf(ret, 24, "%.0f MiB", bytes / (1 << 20));
    else if ((json_int_t)bytes % 1024 == 0)
        snprintf(ret, 24, "%.0f KiB", bytes / 1024);
    else if (bytes >= 1e6)
        snprintf(ret, 24, "%.2f MB", bytes / 1e6);
    else
        snprintf(ret, 24, "%.1f kB", bytes / 1e3);
}

/* True when there is a reason in place of times. */
static bool show_reason(json_t *row) {
    const char *reason = gb_cli_text(row, "reason");

    if (reason[0] == '\0')
        return false;
    fputs("  -  ", stdout);
    gb_cli_put(stdout, reason);
    putchar('\n');
    return true;
}

static void show_copies(json_t *copies) {
    char size[24];
    json_t *row;
    size_t i;

    printf("%-9s %-12s %9s %12s %8s\n", "KIND", "DIRECTION", "SIZE", "MICROSECONDS", "GB/S");
    json_array_foreach(copies, i, row) {
        size_text(gb_cli_number(row, "bytes"), size);
        printf("%-9s %-12s %9s ", gb_cli_text(row, "kind"), gb_cli_text(row, "direction"),
               json_object_get(row, "bytes") != NULL ? size : "all");
        if (!show_reason(row))
            printf("%12.1f %8.2f\n", gb_cli_number(row, "microseconds"), gb_cli_number(row, "gigabytes_per_s"));
    }
}

static void show_allocations(json_t *allocations) {
    char size[24];
    json_t *row;
    size_t i;

    printf("\n%-22s %-6s %9s %12s %12s\n", "MEMORY FROM", "CASE", "SIZE", "ALLOCATE US", "FREE US");
    json_array_foreach(allocations, i, row) {
        bool pool = strcmp(gb_cli_text(row, "kind"), "device") == 0;

        size_text(gb_cli_number(row, "bytes"), size);
        printf("%-22s %-6s %9s ", pool ? "a pool" : "cudaMalloc, cudaFree", gb_cli_text(row, "case"), size);
        if (!show_reason(row))
            printf("%12.1f %12.1f\n", gb_cli_number(row, "allocate_microseconds"),
                   gb_cli_number(row, "free_microseconds"));
    }
    printf("first: the pool grows; again: the median of five; busy: while work is queued on the device\n");
}

static void show_waiting(json_t *waiting) {
    char earlier[24];
    char size[24];

    printf("\nWaiting told from copying:");
    if (show_reason(waiting))
        return;
    size_text(gb_cli_number(waiting, "bytes"), size);
    size_text(gb_cli_number(waiting, "earlier_bytes"), earlier);
    printf(" %s from the device took %.1f us alone, and %.1f us behind %s of\nearlier copies on its stream: it waited "
           "%.1f us and copied for %.1f us.\n",
           size, gb_cli_number(waiting, "alone_microseconds"), gb_cli_number(waiting, "behind_microseconds"), earlier,
           gb_cli_number(waiting, "waited_microseconds"), gb_cli_number(waiting, "copied_microseconds"));
}

static void show_pinning(json_t *pinning) {
    char size[24];

    printf("Pinning:");
    if (show_reason(pinning))
        return;
    size_text(gb_cli_number(pinning, "bytes"), size);
    printf(" %s took %.1f us, %.1f us for each MiB; giving it back took %.1f us.\n", size,
           gb_cli_number(pinning, "pin_microseconds"), gb_cli_number(pinning, "pin_microseconds_per_mib"),
           gb_cli_number(pinning, "unpin_microseconds"));
}

static void show(json_t *answer) {
    printf("device %.0f, ", gb_cli_number(answer, "device.index"));
    gb_cli_put(stdout, gb_cli_text(answer, "name"));
    printf(": %.1f s\n", gb_cli_number(answer, "seconds"));
    show_copies(json_object_get(answer, "copies"));
    show_allocations(json_object_get(answer, "allocations"));
    show_waiting(json_object_get(answer, "waiting"));
    show_pinning(json_object_get(answer, "pinning"));
}

int gb_cli_run_selftest(struct gb_cli *cli, int argc, char **argv) {
    const char *device = cli->options.device != NULL ? cli->options.device : "0";
    char target[GB_CLI_PATH];
    char prefer[32];
    json_t *answer;

    (void)argc;
    (void)argv;
    if (gb_cli_target(cli, target, "/v1/devices/{}/selftest", device) < 0)
        return gb_cli_failed(cli);
    snprintf(prefer, sizeof prefer, "Prefer: wait=%d", WAIT_S);
    answer = gb_cli_request_with(cli, "POST", target, prefer, NULL);
    if (answer == NULL || cli->options.json)
        return gb_cli_show(cli, answer, NULL, 0);
    show(answer);
    json_decref(answer);
    return GB_CLI_DONE;
}
