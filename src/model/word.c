#include "model/word.h"

#include <stdio.h>
#include <string.h>

char *gb_word_quote(const char *word, size_t len, char *out) {
    size_t shown = len < GB_WORD_QUOTE_SIZE - 1 ? len : GB_WORD_QUOTE_SIZE - 4;
    size_t i;

    for (i = 0; i < shown; i++)
        out[i] = word[i] >= 0x20 && word[i] < 0x7f ? word[i] : '?';
    strcpy(out + shown, shown < len ? "..." : "");
    return out;
}

int gb_word_parse(const char *what, const char *const *names, size_t count, const char *word, size_t len,
                  size_t *ret_index, struct gb_error *err) {
    char quoted[GB_WORD_QUOTE_SIZE];
    char list[sizeof(err->detail)];
    size_t at = 0;
    size_t i;

    for (i = 0; i < count; i++) {
        if (strlen(names[i]) == len && memcmp(names[i], word, len) == 0) {
            *ret_index = i;
            return 0;
        }
    }
    list[0] = '\0';
    for (i = 0; i < count && at < sizeof(list); i++)
        at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s", i > 0 ? ", " : "", names[i]);
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the %s \"%s\" is not permitted; permitted are %s", what,
                        gb_word_quote(word, len, quoted), list);
}
