#include "api/middleware/digest_set.h"

#include <string.h>

#include "api/request/json.h"
#include "base/text.h"

int gb_digest_unknown(const char *name, struct gb_error *err) {
    char quoted[GB_WORD_QUOTE_SIZE];

    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "there is no algorithm \"%s\"; permitted: sha-256, sha-512",
                        gb_word_quote(name, strlen(name), quoted));
}

int gb_digest_set_read(const json_t *body, struct gb_digest_set *ret, struct gb_error *err) {
    const json_t *object = NULL;
    enum gb_digest_alg alg;
    const char *name;
    json_t *value;

    if (gb_json_child(body, "digest", &object, err) < 0)
        return -1;
    json_object_foreach((json_t *)(uintptr_t)object, name, value) {
        if (!gb_digest_find(name, strlen(name), &alg))
            return gb_digest_unknown(name, err);
        if (!json_is_string(value))
            return gb_error_set(err, GB_ERR_WRONG_TYPE, "the digest '%s' must be a string", gb_digest_name(alg));
        if (!gb_digest_parse(alg, json_string_value(value), json_string_length(value), &ret->digest[alg]))
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the digest '%s' must be the base64 of %zu bytes",
                                gb_digest_name(alg), gb_digest_size(alg));
        ret->given |= 1u << alg;
    }
    return 0;
}
