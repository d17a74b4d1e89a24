/* gpubuf: reads the command line and the configuration file, and runs the command, here or once for each host. */
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "cli/cli.h"
#include "cli/config.h"

/* With what the configuration file says. */
static int run(struct gb_cli *cli, int argc, char **argv) {
    struct gb_cli_config_scope scope;
    int r;

    if (cli->command->run == gb_cli_run_config)
        return gb_cli_run_config(cli, argc, argv);
    if (cli->options.hosts || cli->options.group)
        return gb_cli_run_hosts(cli, argc, argv);
    r = gb_cli_config_scope(cli, &scope);
    if (r != GB_CLI_DONE)
        return r;
    gb_cli_config_apply(cli, &scope);
    return gb_cli_run(cli, argc, argv);
}

int main(int argc, char **argv) {
    struct gb_cli_config config;
    struct gb_cli cli = {.config = &config};
    int first;
    int r;

    gb_standard_hold();
    if (gb_cli_options_read(argc, argv, &cli.options, &first) < 0)
        return GB_CLI_USAGE;
    if (cli.options.version) {
        printf("gpubuf %s (libgpubuf %s)\n", GB_CLI_VERSION, gpubuf_version());
        return gb_cli_flush(&cli, GB_CLI_DONE);
    }
    cli.command = first < argc ? gb_cli_command_find(argv[first]) : NULL;
    if (cli.options.help && (first >= argc || cli.command)) {
        gb_cli_help(stdout, cli.command, first + 1 < argc ? gb_cli_verb_find(cli.command, argv[first + 1]) : NULL);
        return gb_cli_flush(&cli, GB_CLI_DONE);
    }
    if (!cli.command) {
        if (first < argc)
            gb_cli_command_unknown(argv[first]);
        else
            gb_cli_help(stderr, NULL, NULL);
        return GB_CLI_USAGE;
    }
    argc -= first + 1;
    argv += first + 1;
    if (gb_cli_options_check(&cli.options, cli.command, argc, argv) < 0)
        return GB_CLI_USAGE;
    if (cli.command->run == gb_cli_run_help)
        return gb_cli_run_help(&cli, argc, argv);
    r = gb_cli_config_read(&cli, &config);
    gb_cli_signals_block();
    if (r == GB_CLI_DONE)
        r = run(&cli, argc, argv);
    gb_cli_config_done(&config);
    return r;
}
