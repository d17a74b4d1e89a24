/* gpubuf: reads the command line and runs the command. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/signals.h"

int main(int argc, char **argv) {
    struct gb_cli cli = {0};
    int first;

    if (gb_cli_options_read(argc, argv, &cli.options, &first) < 0)
        return GB_CLI_USAGE;
    if (cli.options.version) {
        printf("gpubuf %s (libgpubuf %s)\n", GB_CLI_VERSION, gpubuf_version());
        return GB_CLI_DONE;
    }
    cli.command = first < argc ? gb_cli_command_find(argv[first]) : NULL;
    if (cli.options.help && (first >= argc || cli.command != NULL)) {
        gb_cli_help(stdout, cli.command);
        return GB_CLI_DONE;
    }
    if (cli.command == NULL) {
        if (first < argc)
            gb_cli_command_unknown(argv[first]);
        else
            gb_cli_help(stderr, NULL);
        return GB_CLI_USAGE;
    }
    argc -= first + 1;
    argv += first + 1;
    if (gb_cli_options_check(&cli.options, cli.command, argc) < 0)
        return GB_CLI_USAGE;
    if (cli.command->run == gb_cli_run_help)
        return gb_cli_run_help(&cli, argc, argv);
    gb_cli_signals_block();
    return cli.options.hosts != NULL ? gb_cli_run_hosts(&cli, argc, argv) : gb_cli_run(&cli, argc, argv);
}
