# What the device needs only now and then: updates, setting it up. Imported when used and forgotten again.
