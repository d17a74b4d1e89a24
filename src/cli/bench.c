/* bench: how fast this client and this daemon move bytes, by each road there is between them. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/progress.h"

#define SIZE (64ull << 20)
#define ROUNDS 5
#define ROUNDS_MOST 1000

struct bench {
    struct gb_cli *cli;
    char name[64]; /* of its buffer */
    unsigned char *sent;
    unsigned char *back;
    uint64_t bytes;
    unsigned rounds;
    double *seconds; /* of each round */
    json_t *rows;
};

static const struct gb_cli_column columns[] = {
    {"ROAD", "road", GB_CLI_FORM_TEXT},   {"WHAT", "what", GB_CLI_FORM_TEXT}, {"BYTES", "bytes", GB_CLI_FORM_BYTES},
    {"GB/S", "shown", GB_CLI_FORM_COUNT}, {"", "note", GB_CLI_FORM_TEXT},
};

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static void add_row(struct bench *bench, const char *road, const char *what, const char *note) {
    json_t *row = json_pack("{s:s, s:s, s:I, s:i}", "road", road, "what", what, "bytes", (json_int_t)bench->bytes,
                            "rounds", (int)bench->rounds);
    char shown[24] = "-";
    double rate = 0;

    if (note == NULL) {
        qsort(bench->seconds, bench->rounds, sizeof *bench->seconds, by_value);
        rate = (double)bench->bytes / bench->seconds[bench->rounds / 2] / 1e9;
        snprintf(shown, sizeof shown, "%.2f", rate);
    }
    json_object_set_new(row, "gb_per_s", note == NULL ? json_real(rate) : json_null());
    json_object_set_new(row, "shown", json_string(shown));
    json_object_set_new(row, "note", json_string(note != NULL ? note : ""));
    json_array_append_new(bench->rows, row);
}

static int compare(struct bench *bench) {
    if (memcmp(bench->sent, bench->back, bench->bytes) == 0)
        return 0;
    return gb_cli_error(bench->cli, GPUBUF_CHECK_FAILED, "the bytes that came back are not those that were sent");
}

/* put and get over one client. */
static int over_socket(struct bench *bench, gpubuf_client *client) {
    struct gb_cli *cli = bench->cli;
    struct gpubuf_put_params put = {.format = "raw", .kind = cli->options.kind};
    struct gpubuf_get_params get = {.connections = (uint32_t)cli->options.connections};
    unsigned i;
    int rc = 0;

    put.connections = get.connections;
    for (i = 0; i < bench->rounds && rc == 0; i++) {
        double began = gb_cli_now();

        rc = gpubuf_put(client, cli->session, bench->name, gpubuf_from_memory(bench->sent, bench->bytes), &put, NULL,
                        &cli->error);
        bench->seconds[i] = gb_cli_now() - began;
    }
    if (rc == 0)
        add_row(bench, gpubuf_url(client), "put", NULL);
    for (i = 0; i < bench->rounds && rc == 0; i++) {
        double began = gb_cli_now();

        rc = gpubuf_get(client, cli->session, bench->name, gpubuf_to_memory(bench->back, bench->bytes), &get, NULL,
                        &cli->error);
        bench->seconds[i] = gb_cli_now() - began;
        if (rc == 0 && i == 0)
            rc = compare(bench);
    }
    if (rc == 0)
        add_row(bench, gpubuf_url(client), "get", NULL);
    return rc;
}

static int over_unix(struct bench *bench) {
    const char *path = gpubuf_socket(bench->cli->client);
    gpubuf_client *client;
    char url[256];
    int rc;

    if (path == NULL || strncmp(gpubuf_url(bench->cli->client), "unix:", 5) == 0)
        return 0;
    snprintf(url, sizeof url, "unix://%s", path);
    if (gb_cli_open(bench->cli, url, NULL, &client) < 0)
        return -1;
    rc = over_socket(bench, client);
    gpubuf_close(client);
    if (rc < 0 && !atomic_load(&bench->cli->interrupted)) {
        add_row(bench, url, "put", bench->cli->error.detail);
        rc = 0;
    }
    return rc;
}

static void copy_mapped(struct bench *bench, void *memory) {
    unsigned i;

    for (i = 0; i < bench->rounds; i++) {
        double began = gb_cli_now();

        memcpy(memory, bench->sent, bench->bytes);
        bench->seconds[i] = gb_cli_now() - began;
    }
    add_row(bench, "map", "memcpy into", NULL);
    for (i = 0; i < bench->rounds; i++) {
        double began = gb_cli_now();

        memcpy(bench->back, memory, bench->bytes);
        bench->seconds[i] = gb_cli_now() - began;
    }
    add_row(bench, "map", "memcpy out of", NULL);
}

/* A buffer of host memory, mapped for writing. What does not work is a note. */
static int by_map(struct bench *bench) {
    struct gb_cli *cli = bench->cli;
    struct gpubuf_put_params put = {.format = "raw", .kind = "pageable"};
    struct gpubuf_map_params params = {.write = true, .ways = GPUBUF_WAY_MEMFD};
    gpubuf_mapping *mapping = NULL;
    int rc;

    rc = gpubuf_put(cli->client, cli->session, bench->name, gpubuf_from_memory(bench->sent, bench->bytes), &put, NULL,
                    &cli->error);
    if (rc == 0)
        rc = gpubuf_map(cli->client, cli->session, bench->name, &params, &mapping, &cli->error);
    if (rc < 0) {
        add_row(bench, "map", "memcpy into", cli->error.detail);
        return atomic_load(&cli->interrupted) ? -1 : 0;
    }
    copy_mapped(bench, gpubuf_mapping_info_of(mapping)->memory);
    rc = gpubuf_unmap(mapping, &cli->error);
    return rc < 0 ? rc : compare(bench);
}

/* Takes the buffer away, also after an interrupt. */
static void clean(struct bench *bench) {
    struct gpubuf_error ignored;
    char target[GB_CLI_PATH];

    gpubuf_resume(bench->cli->client);
    if (gb_cli_target(bench->cli, target, "/v1/sessions/{}/buffers/{}", bench->cli->session, bench->name) == 0)
        (void)gpubuf_request(bench->cli->client, "DELETE", target, NULL, NULL, 0, &ignored);
}

static int prepare(struct bench *bench) {
    const struct gb_cli_options *o = &bench->cli->options;
    uint64_t i;

    bench->bytes = o->given[GB_CLI_ID_size] ? o->size : SIZE;
    bench->rounds = o->given[GB_CLI_ID_rounds] ? (unsigned)(o->rounds < ROUNDS_MOST ? o->rounds : ROUNDS_MOST) : ROUNDS;
    if (bench->bytes == 0 || bench->rounds == 0)
        return gb_cli_refused(bench->cli, GB_CLI_USAGE, "--size and --rounds are at least 1");
    snprintf(bench->name, sizeof bench->name, "gpubuf-bench-%d", (int)getpid());
    bench->sent = malloc(bench->bytes);
    bench->back = malloc(bench->bytes);
    bench->seconds = calloc(bench->rounds, sizeof *bench->seconds);
    bench->rows = json_array();
    if (bench->sent == NULL || bench->back == NULL || bench->seconds == NULL || bench->rows == NULL)
        return gb_cli_refused(bench->cli, GB_CLI_FAILED, "out of memory");
    for (i = 0; i < bench->bytes; i++)
        bench->sent[i] = (unsigned char)(i * 2654435761u >> 13);
    memset(bench->back, 0, bench->bytes);
    return 0;
}

static int show(struct bench *bench) {
    size_t shown = sizeof columns / sizeof columns[0] - 1;
    size_t i;

    for (i = 0; i < json_array_size(bench->rows); i++) {
        json_t *row = json_array_get(bench->rows, i);

        if (gb_cli_text(row, "note")[0] != '\0')
            shown = sizeof columns / sizeof columns[0];
        if (bench->cli->options.json)
            json_object_del(row, "shown");
    }
    return gb_cli_show(bench->cli, json_incref(bench->rows), columns, shown);
}

int gb_cli_run_bench(struct gb_cli *cli, int argc, char **argv) {
    struct bench bench = {.cli = cli};
    int rc;

    (void)argc;
    (void)argv;
    rc = prepare(&bench);
    if (rc == 0) {
        bool good = over_socket(&bench, cli->client) == 0 && over_unix(&bench) == 0 && by_map(&bench) == 0;

        rc = good ? show(&bench) : gb_cli_failed(cli);
        clean(&bench);
    }
    json_decref(bench.rows);
    free(bench.seconds);
    free(bench.back);
    free(bench.sent);
    return rc;
}
