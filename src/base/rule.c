#include "base/rule.h"

#include <string.h>

#include "base/parse.h"

size_t gb_rules_count(const char *text, size_t len) {
    size_t count = 1;
    size_t i;

    for (i = 0; i < len; i++)
        count += text[i] == ',';
    return count;
}

/* OP[@N][+] */
static void read_when(struct gb_rule *rule, size_t len) {
    bool onward = len > 0 && rule->text[len - 1] == '+';
    size_t end = onward ? len - 1 : len;
    const char *at = memchr(rule->text, '@', end);

    rule->op_len = at ? (size_t)(at - rule->text) : end;
    rule->first = 1;
    if (at && gb_parse_u64(at + 1, end - rule->op_len - 1, &rule->first) != GB_PARSE_OK)
        rule->first = 0;
    rule->last = at && !onward ? rule->first : UINT64_MAX;
}

bool gb_rules_next(const char *text, size_t len, size_t *at, struct gb_rule *ret) {
    const char *end;

    if (len == 0 || *at > len)
        return false;
    *ret = (struct gb_rule){.text = text + *at, .len = len - *at};
    end = memchr(ret->text, ',', ret->len);
    if (end)
        ret->len = (size_t)(end - ret->text);
    *at += ret->len + 1;
    end = memchr(ret->text, '=', ret->len);
    if (!end)
        return true;
    read_when(ret, (size_t)(end - ret->text));
    ret->what = end + 1;
    ret->what_len = ret->len - (size_t)(end + 1 - ret->text);
    return true;
}
