#include "serialize/run_log/run_page.h"

#include "serialize/html_page.h"
#include "serialize/run_page_html.h"

namespace tessera {

std::string run_page(const Json& run) { return fill_page(kRunPage, "/*RUN*/null", dump(run)); }

}  // namespace tessera
