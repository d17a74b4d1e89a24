#include <string.h>

#include "daemon/options.h"

#define COLUMN 28
#define WIDTH 100

/* Prints words of text from column `at` on, each new line indented. */
static void put_words(FILE *out, const char *text, size_t at) {
    while (*text != '\0') {
        size_t n = strcspn(text, " ");

        if (at > COLUMN && at + 1 + n > WIDTH) {
            fprintf(out, "\n%*s", COLUMN, "");
            at = COLUMN;
        } else if (at > COLUMN) {
            putc(' ', out);
            at++;
        }
        fwrite(text, 1, n, out);
        at += n;
        text += n + (text[n] == ' ');
    }
}

void gb_options_put(FILE *out, const char *name, const char *argument, const char *help) {
    char left[64];

    snprintf(left, sizeof left, "  %s%s%s", name, argument[0] != '\0' ? " " : "", argument);
    if (strlen(left) >= COLUMN)
        fprintf(out, "%s\n%*s", left, COLUMN, "");
    else
        fprintf(out, "%-*s", COLUMN, left);
    put_words(out, help, COLUMN);
    putc('\n', out);
}

void gb_options_help_of(FILE *out, enum gb_option_id id) {
    const struct gb_option_spec *spec = &gb_option_specs[id];
    char name[64];
    char right[512];
    int n;

    snprintf(name, sizeof name, "--%s", spec->name);
    n = snprintf(right, sizeof right, "%s", spec->help);
    if (spec->type == GB_OPTION_CHOICE)
        n += snprintf(right + n, sizeof right - (size_t)n, ": %s", spec->permitted);
    if (spec->fallback[0] != '\0' && spec->type != GB_OPTION_FLAG)
        n += snprintf(right + n, sizeof right - (size_t)n, " (default %s)", spec->fallback);
    if (spec->type == GB_OPTION_LIST || spec->type == GB_OPTION_PATHS)
        snprintf(right + n, sizeof right - (size_t)n, "; may be repeated");
    gb_options_put(out, name, spec->argument, right);
}

void gb_options_help(FILE *out) {
    size_t i;

    fputs("Usage: gpubufd [OPTION...]\n"
          "       gpubufd token add|list|rotate|revoke ...   who may ask, see gpubufd token --help\n"
          "       gpubufd tls init|server|client|renew|show ...   certificates, see gpubufd tls --help\n"
          "       gpubufd fsck ...   whether stored bytes are sound, see gpubufd fsck --help\n"
          "       gpubufd recover ...   records made again from files of bytes, see gpubufd recover --help\n"
          "       gpubufd check FILE   whether a configuration file has mistakes, see gpubufd check --help\n"
          "\n"
          "Gives out the GPU memory of this machine by name over HTTP.\n"
          "\n",
          out);
    for (i = 0; i < GB_OPTION_IDS; i++)
        gb_options_help_of(out, (enum gb_option_id)i);
    fputs(
        "\n"
        "Each option may also stand in the file that --config names (state-dir = /srv/gpubufd) and in the environment\n"
        "(GPUBUFD_STATE_DIR=/srv/gpubufd). The command line wins over the environment, that over the file.\n"
        "Exit status: 0 stopped in order; 1 findings of fsck or recover; 64 usage; 70 could not start, or not stop in\n"
        "order; 75 device lost; 78 configuration.\n",
        out);
}
