/* The table of kinds of memory by direction by size, and the answer to an old question. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/parse.h"
#include "core/core.h"
#include "daemon/command.h"

#define SIZES 4
#define EARLIER_COPIES 4

static const uint64_t sizes[SIZES] = {64u << 10, 1u << 20, 16u << 20, 256u << 20};

enum direction { TO_DEVICE, FROM_DEVICE, ON_DEVICE, DIRECTIONS };
static const char *const direction_names[DIRECTIONS] = {"to device", "from device", "on device"};

struct request {
    bool json;
    int device; /* -1: all */
};

struct cell {
    uint64_t bytes;
    uint64_t ns; /* 0: not measured */
};

struct row {
    enum gb_kind kind;
    enum direction direction;
    struct cell cells[SIZES];
    struct gb_error error; /* why the rest was not measured */
};

/* --- measuring ---------------------------------------------------------------------------------------------------- */

static void measure_row(struct gb_probe *probe, const struct gb_probe_memory *device,
                        const struct gb_probe_memory *check, struct row *row) {
    struct gb_probe_memory other = {0};
    bool from = row->direction == FROM_DEVICE;
    int i;

    if (gb_probe_alloc(probe, row->kind, device->bytes, &other, &row->error) < 0)
        return;
    for (i = 0; i < SIZES && sizes[i] <= device->bytes; i++) {
        row->cells[i].bytes = sizes[i];
        if (gb_probe_copy(probe, from ? &other : device, from ? device : &other, check, sizes[i], &row->cells[i].ns,
                          &row->error) < 0)
            break;
    }
    gb_probe_free(probe, &other);
}

/* Room for the largest size of which three fit, on either side. */
static uint64_t largest(const struct gb_probe *probe) {
    uint64_t bytes = sizes[SIZES - 1];

    while (bytes > sizes[0] && bytes * 4 > probe->rec.free_bytes)
        bytes /= 4;
    return bytes;
}

/* --- printing ----------------------------------------------------------------------------------------------------- */

static double rate(const struct cell *cell) {
    return (double)cell->bytes / (double)cell->ns; /* bytes by nanosecond: GB/s */
}

/* What went wrong, and whose words for it there are. */
static void print_error(FILE *out, const struct gb_error *err) {
    fprintf(out, "%s", err->detail);
    if (err->native_name[0] != '\0')
        fprintf(out, " (%s: %s)", err->call, err->native_name);
}

static void print_row(const struct row *row) {
    int i;

    printf("  %-10s %-12s", gb_kind_name(row->kind), direction_names[row->direction]);
    for (i = 0; i < SIZES; i++) {
        if (row->cells[i].ns > 0)
            printf(" %9.2f", rate(&row->cells[i]));
        else
            printf(" %9s", "-");
    }
    if (row->error.code != GB_OK) {
        fputs("  ", stdout);
        print_error(stdout, &row->error);
    }
    putchar('\n');
}

static void render_row(struct gb_json_writer *out, const struct row *row) {
    int i;

    for (i = 0; i < SIZES; i++) {
        if (row->cells[i].ns == 0)
            continue;
        gb_json_open(out, NULL, '{');
        gb_json_put_string(out, "kind", gb_kind_name(row->kind));
        gb_json_put_string(out, "direction", direction_names[row->direction]);
        gb_json_put_u64(out, "bytes", row->cells[i].bytes);
        gb_json_put_seconds(out, "seconds", row->cells[i].ns);
        gb_json_put_number(out, "gigabytes_per_s", (double)(uint64_t)(rate(&row->cells[i]) * 1000 + 0.5) / 1000);
        gb_json_put_bool(out, "verified", true);
        gb_json_close(out, '}');
    }
    if (row->error.code == GB_OK)
        return;
    gb_json_open(out, NULL, '{');
    gb_json_put_string(out, "kind", gb_kind_name(row->kind));
    gb_json_put_string(out, "direction", direction_names[row->direction]);
    gb_json_put_untrusted(out, "error", row->error.detail, sizeof(row->error.detail));
    gb_json_put_untrusted(out, "native", row->error.native_name, sizeof(row->error.native_name));
    gb_json_close(out, '}');
}

static void print_wait(const struct gb_probe_wait *w) {
    printf("  Why does a copy from the device seem slow? Asked for behind %.0f MiB of earlier copies on its stream, "
           "one of\n"
           "  %.0f MiB took %.2f ms by a clock around it: it waited %.2f ms and copied for %.2f ms (%.1f GB/s).\n"
           "  Server-Timing and the statistics keep the two apart (queue, copy).\n",
           (double)w->earlier_bytes / (1 << 20), (double)w->bytes / (1 << 20), (double)w->seen_ns / 1e6,
           (double)w->queued_ns / 1e6, (double)w->copied_ns / 1e6, (double)w->bytes / (double)w->copied_ns);
}

static void render_wait(struct gb_json_writer *out, const struct gb_probe_wait *w) {
    gb_json_open(out, "waiting", '{');
    gb_json_put_u64(out, "earlier_bytes", w->earlier_bytes);
    gb_json_put_u64(out, "bytes", w->bytes);
    gb_json_put_seconds(out, "seconds_seen", w->seen_ns);
    gb_json_put_seconds(out, "seconds_queued", w->queued_ns);
    gb_json_put_seconds(out, "seconds_copying", w->copied_ns);
    gb_json_close(out, '}');
}

static void print_head(const struct gb_probe *probe) {
    int i;

    printf("device %d, %s, %s: copies in GB/s by the device's clock, every byte looked at\n", probe->rec.index,
           probe->rec.name, probe->rec.uuid);
    printf("  %-10s %-12s", "kind", "direction");
    for (i = 0; i < SIZES; i++)
        printf(" %5llu %s", (unsigned long long)(sizes[i] >= 1 << 20 ? sizes[i] >> 20 : sizes[i] >> 10),
               sizes[i] >= 1 << 20 ? "MiB" : "KiB");
    putchar('\n');
}

static void render_head(struct gb_json_writer *out, const struct gb_probe *probe) {
    gb_json_open(out, NULL, '{');
    gb_json_put_i64(out, "device", probe->rec.index);
    gb_json_put_string(out, "uuid", probe->rec.uuid);
    gb_json_put_untrusted(out, "name", probe->rec.name, sizeof(probe->rec.name));
    gb_json_open(out, "copies", '[');
}

/* Ends the document of a device and prints it. Returns 0, or -1 with SATURATED. */
static int print_document(struct gb_json_writer *out, struct gb_error *err) {
    gb_json_close(out, '}');
    gb_json_end(out);
    if (out->failed)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the document");
    fwrite(out->s, 1, out->used, stdout);
    return 0;
}

/* --- a device ----------------------------------------------------------------------------------------------------- */

/* Every kind in both directions; those that the device lacks say why. out: NULL to print. Returns whether all that was
 * tried went well. */
static bool test_rows(struct gb_probe *probe, const struct gb_probe_memory *device, const struct gb_probe_memory *check,
                      struct gb_json_writer *out) {
    bool well = true;
    int kind;
    int d;

    for (kind = 0; kind < GB_KIND_COUNT; kind++) {
        for (d = kind == GB_KIND_DEVICE ? ON_DEVICE : TO_DEVICE;
             d <= (kind == GB_KIND_DEVICE ? ON_DEVICE : FROM_DEVICE); d++) {
            struct row row = {.kind = (enum gb_kind)kind, .direction = (enum direction)d, .error = GB_ERROR_INIT};

            if (probe->rec.kind_missing[kind][0] != '\0')
                gb_error_set(&row.error, GB_ERR_UNSUPPORTED, "%s", probe->rec.kind_missing[kind]);
            else
                measure_row(probe, device, check, &row);
            well = well && (row.error.code == GB_OK || row.error.code == GB_ERR_UNSUPPORTED);
            if (out)
                render_row(out, &row);
            else
                print_row(&row);
            fflush(stdout); /* a row takes seconds, and is shown when it is there */
        }
    }
    return well;
}

/* Tests with the memory that both sides have, and prints what came out. out: NULL to print as it goes. */
static int test_with(struct gb_probe *probe, const struct gb_probe_memory *device, const struct gb_probe_memory *check,
                     struct gb_json_writer *out, bool *ret_well, struct gb_error *err) {
    struct gb_probe_wait wait;

    if (out)
        render_head(out, probe);
    else
        print_head(probe);
    *ret_well = test_rows(probe, device, check, out);
    if (out)
        gb_json_close(out, ']');
    if (gb_probe_queue(probe, device, check, device->bytes / 4, EARLIER_COPIES, &wait, err) < 0)
        return -1;
    if (!out) {
        print_wait(&wait);
        putchar('\n');
        return 0;
    }
    render_wait(out, &wait);
    return print_document(out, err);
}

static int test_device(struct gb_backend *be, int index, bool json, bool *ret_well, struct gb_error *err) {
    struct gb_probe_memory device = {0};
    struct gb_probe_memory check = {0};
    struct gb_json_writer out = {0};
    struct gb_probe probe;
    uint64_t bytes;
    int r = -1;

    if (gb_probe_init(&probe, be, index, err) < 0)
        return -1;
    bytes = largest(&probe);
    if (gb_probe_alloc(&probe, gb_probe_device_kind(&probe), bytes, &device, err) == 0 &&
        gb_probe_alloc(&probe, GB_KIND_PINNED, bytes, &check, err) == 0)
        r = test_with(&probe, &device, &check, json ? &out : NULL, ret_well, err);
    gb_json_done(&out);
    gb_probe_free(&probe, &check);
    gb_probe_free(&probe, &device);
    gb_probe_done(&probe);
    return r;
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static const struct gb_command_verb verbs[] = {
    {"[--device N] [--json] [OPTION...]",
     "Copies between the device and every kind of memory, looks at every byte, and prints the rates"}};

static const struct gb_command_option owns[] = {
    {"--device", "N", "this one alone", 1},
    {"--json", "", "one JSON object a device and line", 1},
};

static const enum gb_option_id of_daemon[] = {GB_OPTION_ID_backend, GB_OPTION_ID_config};

static const struct gb_command about = {.word = "selftest",
                                        .verbs = verbs,
                                        .verb_count = 1,
                                        .options = owns,
                                        .option_count = sizeof owns / sizeof owns[0],
                                        .of_daemon = of_daemon,
                                        .of_daemon_count = sizeof of_daemon / sizeof of_daemon[0]};

static int read_words(struct gb_options *options, int argc, char **argv, struct request *ret, struct gb_error *err) {
    int at = 1;

    while (at < argc) {
        struct gb_error why = GB_ERROR_INIT;
        uint64_t n;
        int taken;

        if (strcmp(argv[at], "--json") == 0) {
            ret->json = true;
            at++;
            continue;
        }
        if (strcmp(argv[at], "--device") == 0) {
            if (at + 1 == argc || gb_parse_u64(argv[at + 1], strlen(argv[at + 1]), &n) != GB_PARSE_OK || n > INT32_MAX)
                return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--device needs the index of a device, such as 0");
            ret->device = (int)n;
            at += 2;
            continue;
        }
        taken = gb_options_take(options, argc, argv, &at, &why);
        if (taken < 0 && why.code == GB_ERR_UNKNOWN_FIELD)
            return gb_command_unknown(&about, 0, argv[at], err);
        if (taken < 0)
            return gb_error_move(err, &why);
        if (taken == 0)
            return gb_error_set(
                err, GB_ERR_INVALID_ARGUMENT,
                "selftest: one word too many: \"%.64s\"; permitted: --device N, --json and the daemon's options",
                argv[at]);
    }
    return 0;
}

static enum gb_exit run(struct gb_backend *be, const struct request *request) {
    struct gb_error err = GB_ERROR_INIT;
    int count = gb_backend_device_count(be);
    bool all_well = true;
    int i;

    if (request->device >= count) {
        fprintf(stderr, "gpubufd: there is no device %d; there are %d\n", request->device, count);
        return GB_EXIT_USAGE;
    }
    for (i = 0; i < count; i++) {
        bool well = false;

        if (request->device >= 0 && request->device != i)
            continue;
        if (test_device(be, i, request->json, &well, &err) < 0) {
            fprintf(stderr, "gpubufd: device %d: ", i);
            print_error(stderr, &err);
            putc('\n', stderr);
            return GB_EXIT_SOFTWARE;
        }
        all_well = all_well && well;
    }
    return all_well ? GB_EXIT_OK : GB_EXIT_SOFTWARE;
}

enum gb_exit gb_selftest_command(struct gb_options *options, int argc, char **argv) {
    struct request request = {.device = -1};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_backend *be = NULL;
    char note[GB_BACKEND_NOTE_SIZE];
    enum gb_exit status;
    int r = read_words(options, argc, argv, &request, &err);

    if (r == 0 && options->help) {
        gb_command_help(stdout, &about, GB_COMMAND_ALL);
        return GB_EXIT_OK;
    }
    if (r != 0 || gb_options_finish(options, &err) != 0)
        return gb_command_usage_error(&about, &err);
    if (gb_backend_open(options->backend, &be, note, &err) < 0) {
        fprintf(stderr, "gpubufd: %s\n", err.detail);
        return GB_EXIT_SOFTWARE;
    }
    fprintf(stderr, "backend %s: %s\n", gb_backend_name(be), note);
    status = run(be, &request);
    gb_backend_close(be);
    return status;
}
