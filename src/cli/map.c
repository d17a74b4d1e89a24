/* map: takes a mapping, says which way it went, and may hold it. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/progress.h"

#define LOOK_MS 100

static const struct {
    const char *name;
    unsigned bit;
} ways[] = {
    {"vmm", GPUBUF_WAY_VMM}, {"pool", GPUBUF_WAY_POOL}, {"legacy", GPUBUF_WAY_LEGACY}, {"memfd", GPUBUF_WAY_MEMFD}};

/* -1 when a word is none of them. */
static int read_ways(const char *text, unsigned *ret) {
    unsigned mask = 0;

    while (text != NULL && *text != '\0') {
        size_t n = strcspn(text, ",");
        unsigned bit = 0;
        size_t i;

        for (i = 0; i < sizeof ways / sizeof ways[0]; i++)
            if (strlen(ways[i].name) == n && strncmp(ways[i].name, text, n) == 0)
                bit = ways[i].bit;
        if (bit == 0)
            return -1;
        mask |= bit;
        text += n + (text[n] == ',');
    }
    *ret = mask;
    return 0;
}

static json_t *mapping_json(const struct gpubuf_mapping_info *info, double seconds) {
    double map_ms = (double)(uint64_t)(seconds * 1e6) / 1e3;
    json_t *passed = json_array();
    size_t i;

    for (i = 0; i < info->passed_over_count && i < GPUBUF_WAYS; i++)
        json_array_append_new(
            passed, json_pack("{s:s, s:s}", "way", info->passed_over[i].way, "reason", info->passed_over[i].reason));
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:f, s:o}", "lease", info->lease, "session",
                     info->session, "buffer", info->buffer, "mode", info->write ? "write" : "read", "way",
                     info->way_name, "kind", info->kind, "bytes", (json_int_t)info->bytes, "generation",
                     (json_int_t)info->generation, "map_ms", map_ms, "passed_over", passed);
}

/* Until standard input ends, an interrupt comes, or the daemon goes. */
static bool hold(struct gb_cli *cli, const gpubuf_mapping *mapping) {
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    char waste[512];

    while (!atomic_load(&cli->interrupted)) {
        if (!gpubuf_mapping_alive(mapping))
            return false;
        if (poll(&in, 1, LOOK_MS) > 0 && read(STDIN_FILENO, waste, sizeof waste) <= 0)
            return true;
    }
    return true;
}

int gb_cli_run_map(struct gb_cli *cli, int argc, char **argv) {
    const struct gb_cli_options *o = &cli->options;
    struct gpubuf_map_params params = {0};
    gpubuf_mapping *mapping = NULL;
    struct gb_cli_name name;
    double began;
    bool alive = true;
    int unshown;

    (void)argc;
    if (gb_cli_one_name(cli, argv[0], &name) < 0)
        return gb_cli_failed(cli);
    if (o->mode != NULL && strcmp(o->mode, "read") != 0 && strcmp(o->mode, "write") != 0)
        return gb_cli_refused(cli, GB_CLI_USAGE, "--mode is read or write");
    if (read_ways(o->ways, &params.ways) < 0)
        return gb_cli_refused(cli, GB_CLI_USAGE, "--ways are some of vmm,pool,legacy,memfd");
    params.write = o->mode != NULL && strcmp(o->mode, "write") == 0;
    began = gb_cli_now();
    if (gpubuf_map(cli->client, name.session, name.name, &params, &mapping, &cli->error) < 0)
        return gb_cli_failed(cli);
    gb_cli_show(cli, mapping_json(gpubuf_mapping_info_of(mapping), gb_cli_now() - began), NULL, 0);
    unshown = fflush(stdout) == 0 ? 0 : errno;
    if (o->hold && unshown == 0)
        alive = hold(cli, mapping);
    if (gpubuf_unmap(mapping, &cli->error) < 0 && alive && !atomic_load(&cli->interrupted))
        return gb_cli_failed(cli);
    if (!alive)
        return gb_cli_refused(cli, GB_CLI_FAILED, "the daemon has gone, and the mapping with it");
    if (unshown != 0)
        return gb_cli_refused(cli, GB_CLI_FAILED, "standard output cannot be written: %s", strerror(unshown));
    return atomic_load(&cli->interrupted) ? GB_CLI_INTERRUPTED : GB_CLI_DONE;
}
