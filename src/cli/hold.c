/* hold: keeps a stream busy. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

/* "0" is an index, and everything else a UUID. */
void gb_cli_put_device(json_t *body, const char *device) {
    if (device != NULL && strspn(device, "0123456789") == strlen(device))
        json_object_set_new(body, "device", json_integer(strtol(device, NULL, 10)));
    else if (device != NULL)
        json_object_set_new(body, "device", json_string(device));
}

int gb_cli_run_hold(struct gb_cli *cli, int argc, char **argv) {
    char target[GB_CLI_PATH];
    const char *ms = argv[1];
    json_t *answer;
    json_t *body;

    (void)argc;
    if (ms[0] == '\0' || strspn(ms, "0123456789") != strlen(ms) || strlen(ms) > 9)
        return gb_cli_refused(cli, GB_CLI_USAGE, "\"%s\" is no number of milliseconds: gpubuf hold STREAM MS", ms);
    if (gb_cli_target(cli, target, "/v1/sessions/{}/streams/{}/hold", cli->session, argv[0]) < 0)
        return gb_cli_failed(cli);
    body = json_pack("{s:i}", "ms", atoi(ms));
    gb_cli_put_device(body, cli->options.device);
    answer = gb_cli_request(cli, "POST", target, body);
    if (answer == NULL || cli->options.json)
        return gb_cli_show(cli, answer, NULL, 0);
    if (!cli->options.quiet) {
        gb_cli_put(stdout, gb_cli_text(answer, "stream"));
        printf(": held on device %lld until ", (long long)gb_cli_number(answer, "device.index"));
        gb_cli_put(stdout, gb_cli_text(answer, "held_until"));
        putchar('\n');
    }
    json_decref(answer);
    return GB_CLI_DONE;
}
