/* Waiting: sync and wait. */
#include <string.h>

#include "cli/cli.h"
#include "cli/progress.h"

#define WAIT_S 30 /* of one request; the daemon may cut it */

/* Asks again as long as the daemon says that the work did not end in time. */
static json_t *ask_until(struct gb_cli *cli, const char *target, json_t *body) {
    double end = cli->options.timeout > 0 ? gb_cli_now() + cli->options.timeout : 0;
    json_t *answer = NULL;

    for (;;) {
        double left = end > 0 ? end - gb_cli_now() : WAIT_S;
        char prefer[32];

        snprintf(prefer, sizeof prefer, "Prefer: wait=%d", left > WAIT_S ? WAIT_S : left < 1 ? 1 : (int)left);
        answer = gb_cli_request_with(cli, "POST", target, prefer, json_incref(body));
        if (answer != NULL || cli->error.code != GPUBUF_TIMED_OUT || (end > 0 && gb_cli_now() >= end))
            break;
    }
    json_decref(body);
    return answer;
}

static int sync_side(struct gb_cli *cli, const char *text) {
    char target[GB_CLI_PATH];
    struct gb_cli_name name;
    json_t *body;

    if (gb_cli_one_name(cli, text, &name) < 0 ||
        gb_cli_target(cli, target, "/v1/sessions/{}/buffers/{}/sync", name.session, name.name) < 0)
        return gb_cli_failed(cli);
    body = json_pack("{s:s}", "to", cli->options.to != NULL ? cli->options.to : "device");
    if (body != NULL && cli->options.stream != NULL)
        json_object_set_new(body, "stream", json_string(cli->options.stream));
    return gb_cli_show_buffer(cli, gb_cli_request(cli, "POST", target, body));
}

static int sync_target(struct gb_cli *cli, char *ret) {
    const struct gb_cli_options *o = &cli->options;

    if (o->device != NULL)
        return gb_cli_target(cli, ret, "/v1/devices/{}/sync", o->device);
    if (o->stream != NULL)
        return gb_cli_target(cli, ret, "/v1/sessions/{}/streams/{}/sync", cli->session, o->stream);
    return gb_cli_target(cli, ret, "/v1/sessions/{}/sync", cli->session);
}

int gb_cli_run_sync(struct gb_cli *cli, int argc, char **argv) {
    char target[GB_CLI_PATH];
    json_t *answer;

    if (cli->options.device != NULL && (argc > 0 || cli->options.stream != NULL))
        return gb_cli_refused(cli, GB_CLI_USAGE,
                              "--device syncs all of a device: it goes with no NAME and no --stream");
    if (argc > 0)
        return sync_side(cli, argv[0]);
    if (cli->options.to != NULL)
        return gb_cli_refused(cli, GB_CLI_USAGE, "--to is the side of a mirrored buffer: gpubuf sync NAME --to SIDE");
    if (sync_target(cli, target) < 0)
        return gb_cli_failed(cli);
    answer = ask_until(cli, target, json_object());
    if (answer == NULL || cli->options.json)
        return gb_cli_show(cli, answer, NULL, 0);
    json_decref(answer);
    return GB_CLI_DONE;
}

int gb_cli_run_wait(struct gb_cli *cli, int argc, char **argv) {
    const struct gpubuf_answer *answer;
    uint32_t timeout_s = (uint32_t)(cli->options.timeout + 0.999);

    (void)argc;
    if (gpubuf_operation_wait(cli->client, argv[0], timeout_s, &cli->error) < 0)
        return gb_cli_failed(cli);
    answer = gpubuf_answer_of(cli->client);
    return gb_cli_show(cli, json_loadb(answer->body, answer->bytes, 0, NULL), NULL, 0);
}
