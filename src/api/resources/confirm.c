#include "api/resources/confirm.h"

#include <stdio.h>
#include <string.h>

#include "api/context.h"
#include "api/request/body.h"
#include "api/request/json.h"
#include "api/request/query.h"

int gb_put_read(const struct gb_http_request *request, const struct gb_name *name, const char *fields, json_t **ret,
                struct gb_error *err) {
    const char *none_match = gb_http_header(request, "If-None-Match");
    struct gb_name given = *name;

    if (gb_http_header(request, "If-Match"))
        return gb_error_set(err, GB_ERR_PRECONDITION_FAILED,
                            "this PUT changes nothing that exists, and takes no If-Match; PATCH does");
    if (none_match && strcmp(none_match, "*") != 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "If-None-Match of this PUT can only be *, with which nothing that exists is confirmed");
    if (gb_body_object(request, fields, true, ret, err) < 0)
        return -1;
    if (gb_json_name(*ret, "name", &given, err) >= 0 && gb_name_equal(&given, name))
        return 0;
    if (!gb_name_equal(&given, name))
        gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                     "the field 'name' is \"%.40s\", and the path names \"%.40s\"; leave the field out", given.s,
                     name->s);
    json_decref(*ret);
    return -1;
}

void gb_differ(struct gb_differences *differences, bool differs, const char *field) {
    size_t used = strlen(differences->fields);

    if (differs)
        snprintf(differences->fields + used, sizeof(differences->fields) - used, "%s%s", used > 0 ? ", " : "", field);
}

int gb_confirm(const struct gb_http_request *request, const char *what, const struct gb_name *name,
               const struct gb_differences *differences, enum gb_code exists, struct gb_error *err) {
    struct gb_session_view view;
    struct gb_name session;

    if (gb_http_header(request, "If-None-Match"))
        return gb_error_set(err, GB_ERR_PRECONDITION_FAILED, "a %s named \"%s\" exists, and If-None-Match is *", what,
                            name->s);
    if (differences->fields[0] != '\0')
        return gb_error_set(err, exists,
                            "a %s named \"%s\" exists, and these properties differ from those asked for: %s", what,
                            name->s, differences->fields);
    if (gb_param_name(request, 0, "session name", &session, err) < 0 ||
        gb_session_heartbeat(gb_api_of(request)->core, &session, &view, err) < 0)
        return -1;
    gb_session_rec_done(&view.rec);
    return 0;
}
