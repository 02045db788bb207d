/* The header under its older name. */
#ifndef DNNL_CONFIG_H
#define DNNL_CONFIG_H

#include "oneapi/dnnl/dnnl_config.h"

#endif
