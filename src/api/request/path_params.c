#include "api/request/path_params.h"

#include "api/context.h"
#include "api/request/query.h"

int gb_path_session(const struct gb_http_request *request, struct gb_name *ret, struct gb_error *err) {
    struct gb_session_view view;

    if (gb_param_name(request, 0, "session name", ret, err) < 0)
        return -1;
    if (gb_session_get(gb_api_of(request)->core, ret, &view, err) < 0)
        return -1;
    gb_session_rec_done(&view.rec);
    return 0;
}

int gb_path_names(const struct gb_http_request *request, const char *what, struct gb_name *ret_session,
                  struct gb_name *ret, struct gb_error *err) {
    if (gb_path_session(request, ret_session, err) < 0)
        return -1;
    return gb_param_name(request, 1, what, ret, err);
}

int gb_path_locator(const struct gb_http_request *request, const char *what, struct gb_locator *ret,
                    struct gb_error *err) {
    return gb_path_names(request, what, &ret->session, &ret->name, err);
}
