/* Options: lines of a file, then words of a command line. Any text is refused with a reason, or gives values within
 * their bounds, which written into a file are read as the same. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/checks.h"
#include "daemon/options.h"
#include "fuzz.h"

#define WORDS_MAX 16

const unsigned gb_fuzz_mutants = 1000;
const char *const gb_fuzz_seeds[] = {
    "listen = 127.0.0.1:0, [::1]:7070 # both\nslots-bytes = 64MiB\nlog-level=debug\n",
    "host-name=a.example b.example\nhost-name = c\n\n  # nothing\nexit-on-device-loss = yes\n",
    "quota-bytes = unlimited\nmap-uids = 1000,any\ndefault-pool-reuse = event,internal\nsocket-mode = 0777\n",
    "max-sessions = 0\n",
    "\n--listen=none\n--exit-on-device-loss\n--max-json\n64K\nword\n-h\n",
    NULL,
};

static int read_bytes(struct gb_options *options, const char *bytes, size_t n, struct gb_error *err) {
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    char path[32];
    int r;

    FUZZ_ASSERT(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    r = gb_options_file(options, path, err);
    close(fd);
    return r;
}

static void check_bounds(const struct gb_options *options) {
    unsigned i;

    for (i = 0; i < GB_OPTION_IDS; i++) {
        const struct gb_option_spec *spec = &gb_option_specs[i];
        uint64_t value;

        if (spec->type != GB_OPTION_SIZE && spec->type != GB_OPTION_COUNT && spec->type != GB_OPTION_SECONDS)
            continue;
        memcpy(&value, (const char *)options + spec->at, sizeof(value));
        FUZZ_ASSERT(value >= spec->min && value <= spec->max);
    }
}

/* --- written and read again --------------------------------------------------------------------------------------- */

static void write_value(FILE *out, const struct gb_option_spec *spec, const void *value) {
    const struct gb_text_list *list = value;
    uint64_t number;
    size_t i;

    fprintf(out, "%s = ", spec->name);
    switch (spec->type) {
    case GB_OPTION_TEXT:
    case GB_OPTION_PATH:
    case GB_OPTION_CHOICE:
        fprintf(out, "%s", *(char *const *)value);
        break;
    case GB_OPTION_LIST:
    case GB_OPTION_PATHS:
        /* An item that begins with # is one only right behind a comma. */
        for (i = 0; i < list->count; i++)
            fprintf(out, ",%s", list->items[i]);
        break;
    case GB_OPTION_FLAG:
        fprintf(out, "%s", *(const bool *)value ? "true" : "false");
        break;
    default:
        memcpy(&number, value, sizeof(number));
        if (number == GB_UNLIMITED)
            fprintf(out, "unlimited");
        else
            fprintf(out, "%" PRIu64, number);
        break;
    }
    fprintf(out, "\n");
}

static char *write_all(const struct gb_options *options, size_t *ret_n) {
    char *text = NULL;
    FILE *out = open_memstream(&text, ret_n);
    unsigned i;

    FUZZ_ASSERT(out);
    for (i = 0; i < GB_OPTION_IDS; i++)
        if (i != GB_OPTION_ID_config && i != GB_OPTION_ID_help && i != GB_OPTION_ID_version)
            write_value(out, &gb_option_specs[i], (const char *)options + gb_option_specs[i].at);
    fclose(out);
    return text;
}

static void check_again(const struct gb_options *options) {
    struct gb_options again = {0};
    size_t n;
    size_t m;
    char *text = write_all(options, &n);
    char *second;

    FUZZ_ASSERT(read_bytes(&again, text, n, NULL) == 0 && gb_options_finish(&again, NULL) == 0);
    second = write_all(&again, &m);
    FUZZ_ASSERT(n == m && memcmp(text, second, n) == 0);
    free(text);
    free(second);
    gb_options_done(&again);
}

/* --- a command line ----------------------------------------------------------------------------------------------- */

static int take_words(struct gb_options *options, char *text, struct gb_error *err) {
    char *words[WORDS_MAX];
    int count = 0;
    int taken = 1;
    int at = 0;

    for (; *text && count < WORDS_MAX; text += strlen(text) + 1) {
        char *end = strchrnul(text, '\n');

        if (*end == '\0') {
            words[count++] = text;
            break;
        }
        *end = '\0';
        words[count++] = text;
    }
    while (at < count && taken > 0) {
        int before = at;

        taken = gb_options_take(options, count, words, &at, err);
        FUZZ_ASSERT(at <= count && (taken > 0) == (at > before));
    }
    return taken < 0 ? -1 : 0;
}

/* What is read from single values when the daemon starts. */
static void read_values(const struct gb_options *options) {
    struct gb_error err[4] = {GB_ERROR_INIT};
    struct gb_socket_rights rights = {0};
    struct gb_default_pools pools;
    struct gb_id_list ids;
    unsigned i;
    int r[4];

    r[0] = gb_daemon_read_ids(&options->map_uids, "--map-uids", &ids, &err[0]);
    r[1] = gb_daemon_read_ids(&options->map_gids, "--map-gids", &ids, &err[1]);
    r[2] = gb_daemon_read_default_pools(options, &pools, &err[2]);
    r[3] = gb_socket_rights_read(options->socket_mode, "", &rights, &err[3]);
    FUZZ_ASSERT(r[3] < 0 || rights.mode <= 0777);
    for (i = 0; i < 4; i++)
        if (r[i] < 0)
            FUZZ_ASSERT_SAYS(err[i]);
}

/* An empty line divides the file from the command line. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_options options = {0};
    char *text = malloc(size + 1);
    char *words;

    FUZZ_ASSERT(text);
    memcpy(text, data, size);
    text[size] = '\0';
    words = memmem(text, size, "\n\n", 2);
    if (read_bytes(&options, text, words ? (size_t)(words - text) : size, &err) < 0 ||
        take_words(&options, words ? words + 2 : text + size, &err) < 0) {
        FUZZ_ASSERT_SAYS(err);
    } else {
        free(options.config); /* would name a file of this machine */
        options.config = NULL;
        FUZZ_ASSERT(gb_options_finish(&options, &err) == 0);
        check_bounds(&options);
        if (!words) /* a word of the command line may begin or end with a space, which a file cannot say */
            check_again(&options);
        read_values(&options);
    }
    gb_options_done(&options);
    free(text);
    return 0;
}
