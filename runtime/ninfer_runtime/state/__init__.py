"""What a sequence leaves on the device between rounds."""
