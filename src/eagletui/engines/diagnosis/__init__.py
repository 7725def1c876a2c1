"""Why a launch failed: the catalogue of what engines, their libraries and the kernel print, and the judgement on a log.

`catalogue` is data, in files by theme; `entries` all of it. `witness` notes what of it a log shows while it is read, `judge`
ranks that, with what is known of the process's end; `report` is the document that scripts read.
"""
