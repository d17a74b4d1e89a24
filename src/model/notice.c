#include "model/notice.h"

#include <string.h>

#include "model/word.h"

static const char *const words[] = {
#define GB_NOTICE(name, word) word,
#include "model/notices.def"
#undef GB_NOTICE
};

const char *gb_notice_word(enum gb_notice_type type) {
    return type < GB_NOTICE_TYPES ? words[type] : "unknown";
}

enum gb_notice_type gb_notice_type_of(const char *word) {
    int type;

    for (type = 0; type < GB_NOTICE_TYPES; type++) {
        if (strcmp(words[type], word) == 0)
            break;
    }
    return (enum gb_notice_type)type;
}

static uint64_t mask_of(const char *prefix, size_t len) {
    uint64_t mask = 0;
    int type;

    for (type = 0; type < GB_NOTICE_TYPES && len > 0; type++) {
        if (strncmp(words[type], prefix, len) == 0)
            mask |= 1ULL << type;
    }
    return mask;
}

int gb_notice_types_parse(const char *text, size_t len, uint64_t *ret_mask, struct gb_error *err) {
    char quoted[GB_WORD_QUOTE_SIZE];
    uint64_t mask = 0;
    size_t at = 0;

    while (at <= len) {
        const char *comma = memchr(text + at, ',', len - at);
        size_t n = comma ? (size_t)(comma - (text + at)) : len - at;
        uint64_t more = mask_of(text + at, n);

        if (!more)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                                "no type of event begins with \"%s\"; types begin with session., pool., buffer., "
                                "memory., quota., lease., device., storage., daemon., checkpoint., fleet. or feed.",
                                gb_word_quote(text + at, n, quoted));
        mask |= more;
        at += n + 1;
    }
    *ret_mask = mask;
    return 0;
}
