/* The file of tokens, as lines and as JSON. Any bytes are refused with a line and a reason that does not repeat a
 * secret, or give tokens that something opens, no two alike; written as lines they are read as the same. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/tokens_file.h"
#include "fuzz.h"

#define MARK "~s3cr3t~" /* of the seeds' secrets; no name can have it */

const unsigned gb_fuzz_mutants = 2000;
const char *const gb_fuzz_seeds[] = {
    "# all\nname=a secret=0123456" MARK "89 scope=read,write session=s prefix=\"cam-\"\n",
    "name=b hash=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa expires=2030-01-02T03:04:05Z\n",
    "name=\"c\" subject=\"CN=a \\\\\\\"b\\\\\\\" \\\\,O=c\" scope=admin\r\nname=d subject=dns:d.example",
    "[{\"name\": \"e\", \"secret\": \"0123456" MARK
    "89\", \"scope\": null}, {\"name\": \"f\", \"subject\": \"dns:x\"}]",
    "{\"name\": \"g\", \"hash\": \"x\"}\n{\"name\": \"h\"}",
    "name=x secret=0123456" MARK "89 0123456" MARK "89=x scope=0123456" MARK "89",
    NULL,
};

static int read_bytes(struct gb_tokens_file *file, const char *bytes, size_t n, struct gb_error *err) {
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    char path[32];
    int r;

    FUZZ_ASSERT(fd >= 0 && write(fd, bytes, n) == (ssize_t)n && fchmod(fd, 0600) == 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    r = gb_tokens_file_read(file, path, err);
    close(fd);
    return r;
}

static void check_tokens(const struct gb_tokens_file *file) {
    size_t i;
    size_t k;

    for (i = 0; i < file->count; i++) {
        const struct gb_token_rec *t = &file->recs[i];
        struct gb_name name;

        FUZZ_ASSERT(gb_name_parse("", t->name.s, strlen(t->name.s), &name, NULL) == 0 && t->id < 0);
        FUZZ_ASSERT(t->scopes > 0 && t->scopes < 1u << GB_SCOPE_COUNT);
        FUZZ_ASSERT(t->subject[0] == '\0' || gb_subject_flaw(t->subject) == NULL);
        FUZZ_ASSERT(strlen(t->sha256_hex) == 64 || (t->sha256_hex[0] == '\0' && t->subject[0] != '\0'));
        for (k = 0; k < i; k++) {
            FUZZ_ASSERT(t->id != file->recs[k].id && strcmp(t->name.s, file->recs[k].name.s) != 0);
            FUZZ_ASSERT(t->sha256_hex[0] == '\0' || strcmp(t->sha256_hex, file->recs[k].sha256_hex) != 0);
        }
    }
}

/* --- written and read again --------------------------------------------------------------------------------------- */

static void write_quoted(FILE *out, const char *key, const char *value) {
    if (value[0] == '\0')
        return;
    fprintf(out, " %s=\"", key);
    for (; *value; value++)
        fprintf(out, *value == '"' || *value == '\\' ? "\\%c" : "%c", *value);
    fprintf(out, "\"");
}

static void write_token(FILE *out, const struct gb_token_rec *t) {
    char scopes[GB_SCOPES_SIZE];
    char when[GB_RFC3339_SIZE];

    fprintf(out, "name=%s", t->name.s);
    write_quoted(out, "hash", t->sha256_hex);
    write_quoted(out, "scope", gb_scopes_text(t->scopes, scopes));
    write_quoted(out, "session", t->session);
    write_quoted(out, "prefix", t->prefix);
    write_quoted(out, "subject", t->subject);
    if (t->expires_at_us > 0)
        write_quoted(out, "expires", gb_rfc3339(t->expires_at_us, when));
    fprintf(out, "\n");
}

static char *write_all(const struct gb_tokens_file *file, size_t *ret_n) {
    char *text = NULL;
    FILE *out = open_memstream(&text, ret_n);
    size_t i;

    FUZZ_ASSERT(out);
    for (i = 0; i < file->count; i++)
        write_token(out, &file->recs[i]);
    fclose(out);
    return text;
}

static void check_again(const struct gb_tokens_file *file) {
    struct gb_tokens_file again = {.recs = NULL};
    size_t n;
    size_t m;
    char *text = write_all(file, &n);
    char *second;

    FUZZ_ASSERT(read_bytes(&again, text, n, NULL) == 0 && again.count == file->count);
    second = write_all(&again, &m);
    FUZZ_ASSERT(n == m && memcmp(text, second, n) == 0);
    free(text);
    free(second);
    gb_tokens_file_done(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct gb_tokens_file file = {.recs = NULL};
    struct gb_error err = GB_ERROR_INIT;

    if (read_bytes(&file, (const char *)data, size, &err) < 0) {
        FUZZ_ASSERT_SAYS(err);
        FUZZ_ASSERT(!strstr(err.detail, MARK) && file.count == 0);
    } else {
        check_tokens(&file);
        check_again(&file);
    }
    gb_tokens_file_done(&file);
    return 0;
}
