"""Run an application for ``kinesumer run``, in this process or in several."""
